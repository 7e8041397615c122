-- Hand-offs: waits of an accepted or kept-alive connection for a worker thread.
-- pid, tid: the worker. start_time: accept() returned, or the next request's first byte arrived; end_time: first touch of the
-- descriptor by a thread different from the accepting thread.
-- client_wait_ns: from start_time to the first byte (longer than duration_ns if the worker waited for the byte). handoff_ns:
-- part of duration_ns with bytes present and no thread. py_stack: of the worker at the touch, leaf first; empty if the bytes
-- waited for less than handoff.stack_min_us.
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
