-- All waits for the GIL, however short, summed in the kernel: a row per interval (start_time to end_time), waiting thread (pid,
-- tid) and holder at the wait's begin (holder_tid).
CREATE TABLE IF NOT EXISTS ebpf_gil_wait_profile
(
#include "tables/thread_columns.inc"
    holder_tid UInt32 CODEC(Delta, ZSTD),
    holder_host_tid UInt32 CODEC(Delta, ZSTD),
    waits UInt64 CODEC(ZSTD),
    wait_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    forced_ns UInt64 CODEC(ZSTD),
    max_ns UInt64 CODEC(ZSTD),
    wait_ms Float64 ALIAS wait_ns / 1e6
)
#include "tables/thread_engine.inc"
