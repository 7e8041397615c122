-- Outbound connections that ended: from ESTABLISHED (start_time) to CLOSE (end_time); duration_ns: the connection's life. A
-- separate table, because the row at the start must not wait for the end, hours later in a pool: each connection has a row in
-- ebpf_tcp_connect when the outcome is known, and a row here at the end.
-- pid, tid, comm: the connecting thread. closed_by: local, remote (the peer's FIN came first), reset, timeout. Bytes are the
-- application's: without retransmissions, SYN and FIN. tcp_state: the last state before CLOSE.
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
