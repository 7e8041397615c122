-- Accept queues. kind 'accepted': a connection that waited; start_time: the last ACK of the handshake created the socket,
-- end_time: accept() returned; pid, tid: the accepting thread. 'never_accepted': the listener was closed before. 'dropped':
-- handshakes dropped by a listener between start_time and end_time (a second at most). For the last two kinds pid, tid: the
-- thread that last accepted from this listener or called listen().
-- queue_len: the listener's queue at the connection's arrival, including the connection, as in `ss -ltn` (dropped: at end_time);
-- the queue is full when queue_len exceeds queue_max. handshake_rtt_us is 0 if the kernel has no value (SYN cookies, a repeated
-- SYN-ACK). drops: the listener's share of nstat's TcpExtListenDrops, overflows: of TcpExtListenOverflows. Sums of a
-- network namespace are exact; of two listeners that drop within a second, a drop or overflow may be assigned to the wrong one.
-- Unix sockets are not included. A connection accepted by io_uring has a row when a descriptor is assigned; connections that
-- only enter the ring's file table count as filtered in ebpf_agent, since no event shows the time. For MPTCP: the first subflow.
-- For TCP Fast Open the wait begins with the SYN that carried data.
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
