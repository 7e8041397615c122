-- Outbound connections that ended: from ESTABLISHED (start_time) to CLOSE (end_time); duration_ns is the connection's life.
-- A table of its own, because a row at the start must not wait for the end, hours later in a pool: each connection has
-- one row in ebpf_tcp_connect when its outcome is known, and one here when it is over.
-- pid, tid, comm are the thread's that connected. closed_by tells who ended it first: local, remote (its FIN came
-- first), reset, timeout. Bytes are the application's: neither retransmissions nor SYN and FIN. tcp_state is the last
-- before CLOSE.
CREATE TABLE IF NOT EXISTS ebpf_tcp_connect_closed
(
#include "tables/thread_columns.inc"
#include "tables/tcp_columns.inc"
    closed_by LowCardinality(String),
    bytes_sent UInt64 CODEC(ZSTD),
    bytes_received UInt64 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
