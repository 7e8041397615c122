-- Outbound connections, one row each as soon as its outcome is known: from the first SYN (start_time) to ESTABLISHED or to
-- the failure (end_time). pid, tid, comm are the connecting thread's, blocking or not.
-- outcome: success, refused, timeout, unreachable, reset, denied (a firewall rule or policy of this host), no_port (no local port or
-- address left), aborted (closed by the caller before there was an answer; errno 0), failed (any other errno). What fails
-- before a SYN is sent (no route) has duration 0 and, unless bound before, no local_port. srtt_us is the handshake's
-- round trip, total_retrans the SYNs sent again. How the connection went on: ebpf_tcp_connect_closed.
-- A connect() through io_uring that fails before a SYN is sent (no route, no port) has no row. Of an MPTCP connection the first
-- subflow is meant.
CREATE TABLE IF NOT EXISTS ebpf_tcp_connect
(
#include "tables/thread_columns.inc"
#include "tables/tcp_columns.inc"
    outcome LowCardinality(String),
    errno UInt16 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
