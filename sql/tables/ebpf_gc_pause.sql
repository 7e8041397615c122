-- Garbage collections: pid, tid are the collecting thread's.
-- generation is the one really collected (-1: could not be read). frozen_threads waited for the
-- GIL when the collection ended. NULL: not counted, as in a collection under 1 ms of a process of more than
-- 41 threads, or any with more than 512. In a process of 10 to 41 threads, collections too short to be worth a count
-- of their own (16 times the price, 70 ns a thread) have the newest one, some 0.3 ms old at most.
-- sibling_threads are all other threads of the process.
CREATE TABLE IF NOT EXISTS ebpf_gc_pause
(
#include "tables/thread_columns.inc"
    generation Int8,
    reason LowCardinality(String),
    collected UInt64 CODEC(ZSTD),
    uncollectable UInt64 CODEC(ZSTD),
    frozen_threads Nullable(UInt32) CODEC(ZSTD),
    sibling_threads UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    method LowCardinality(String),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
