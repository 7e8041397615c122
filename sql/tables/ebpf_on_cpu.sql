-- Samples of threads of Python processes on a CPU, on_cpu.hertz times a second of each CPU: which code computes. Each stands for
-- duration_ns of CPU time, the clock's period before end_time: sum(duration_ns * weight) estimates a thread's CPU time, for all
-- threads of the process, native ones too. Times of single samples are the clock's, not the thread's.
-- py_stack, leaf first, at end_time: empty for native threads, and where the thread's state could not be read
-- (stack_state of ebpf_agent).
CREATE TABLE IF NOT EXISTS ebpf_on_cpu
(
#include "tables/thread_columns.inc"
    cpu UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
