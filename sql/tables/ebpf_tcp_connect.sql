-- Outbound connections, a row each when the outcome is known: from the first SYN (start_time) to ESTABLISHED or the failure
-- (end_time). pid, tid, comm: the connecting thread, blocking or not.
-- outcome: success, refused, timeout, unreachable, reset, denied (a firewall rule or policy of this host), no_port (no local
-- port or address left), aborted (closed by the caller before an answer; errno 0), failed (any further errno). A failure before
-- the first SYN (no route) has duration 0 and, unless bound, no local_port. srtt_us: the handshake's round trip; total_retrans:
-- repeated SYNs. The rest of the connection's life: ebpf_tcp_connect_closed.
-- A connect() through io_uring that fails before the first SYN has no row. For MPTCP: the first subflow.
CREATE TABLE IF NOT EXISTS ebpf_tcp_connect
(
#include "tables/thread_columns.inc"
#include "tables/tcp_columns.inc"
    outcome LowCardinality(String),
    errno UInt16 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
