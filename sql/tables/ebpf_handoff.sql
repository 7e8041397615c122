-- Hand-offs: how long an accepted (or kept-alive) connection waited for a worker thread.
-- pid, tid are the worker's. start_time: accept() returned, or the next request's first byte arrived;
-- end_time: the first touch of the descriptor by a thread other than the accepting one.
-- client_wait_ns is counted from start_time until the first byte was there (longer than
-- duration_ns when the worker itself then waited for it); handoff_ns is the part of duration_ns in
-- which the bytes were there and no thread was. py_stack is the worker's, leaf first, as it touched the descriptor; empty
-- where the bytes were there for less than handoff.stack_min_us.
CREATE TABLE IF NOT EXISTS ebpf_handoff
(
#include "tables/thread_columns.inc"
    queue LowCardinality(String),
    pickup LowCardinality(String),
    client_wait_ns UInt64 CODEC(ZSTD),
    handoff_ns UInt64 CODEC(ZSTD),
    fd UInt32 CODEC(ZSTD),
    main_tid UInt32 CODEC(Delta, ZSTD),
    main_thread_name LowCardinality(String),
    local_port UInt16 CODEC(ZSTD),
    peer_ip IPv6 CODEC(ZSTD),
    peer_port UInt16 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    client_wait_ms Float64 ALIAS client_wait_ns / 1e6,
    handoff_ms Float64 ALIAS handoff_ns / 1e6
)
#include "tables/thread_engine.inc"
