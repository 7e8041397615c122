-- Accept queues. kind 'accepted': a connection that waited, start_time: its socket came to be with the last ACK of the
-- handshake, end_time: accept() returned it; pid, tid are the accepting thread's. 'never_accepted': the listener was
-- closed before. 'dropped': handshakes that a listener dropped between start_time and end_time (a second at most).
-- For the latter two pid, tid are the thread that accepted last from this listener or called listen().
-- queue_len is the listener's queue when the connection came, itself included, as `ss -ltn` shows it then (dropped: at
-- end_time); the queue is full when it exceeds queue_max. handshake_rtt_us is 0 where the kernel has none (SYN cookies, a
-- SYN-ACK sent twice). drops is the listener's share of nstat's TcpExtListenDrops, overflows its share of
-- TcpExtListenOverflows: each exact in sum; when two listeners of one network namespace drop within one second for
-- different reasons, which of them overflowed is not known. Connections over unix sockets are not here. What io_uring
-- accepts has a row when it gets a descriptor; ebpf_agent counts as filtered what only gets a place in a ring's own table of
-- files, for nothing tells when. Of an MPTCP connection the first subflow is meant; of one with TCP Fast Open the wait begins with the SYN that brought the data.
CREATE TABLE IF NOT EXISTS ebpf_tcp_accept
(
#include "tables/thread_columns.inc"
#include "tables/tcp_columns.inc"
    kind LowCardinality(String),
    listen_ip IPv6 CODEC(ZSTD),
    queue_len UInt32 CODEC(ZSTD),
    queue_max UInt32 CODEC(ZSTD),
    handshake_rtt_us UInt32 CODEC(ZSTD),
    drops UInt32 CODEC(ZSTD),
    overflows UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
