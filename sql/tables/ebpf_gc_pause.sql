-- Garbage collections; pid, tid: the collecting thread.
-- generation: the generation collected (-1: unreadable). frozen_threads: threads waiting for the GIL when the collection ended.
-- NULL: not counted, as for collections under 1 ms in a process of more than 41 threads, and in any process of more than 512
-- threads. In a process of 10 to 41 threads, collections too short for a count (16 times the price, 70 ns a thread) have the
-- newest count, up to about 0.3 ms old. sibling_threads: all further threads of the process.
CREATE TABLE IF NOT EXISTS ebpf_gc_pause
(
#include "tables/thread_columns.inc"
    generation Int8,
    reason LowCardinality(String),
    collected UInt64 CODEC(ZSTD),
    uncollectable UInt64 CODEC(ZSTD),
    long_lived Nullable(UInt64) CODEC(ZSTD),
    frozen_threads Nullable(UInt32) CODEC(ZSTD),
    sibling_threads UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    method LowCardinality(String),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
