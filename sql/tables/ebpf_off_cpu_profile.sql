-- All intervals off the CPU, however short, summed in the kernel: a row per interval of the sums (start_time to end_time),
-- thread, user stack, system call, cause, waker and Python stack. kernel_stack: of the first interval.
-- py_stack is sampled, once in 20 ms of a sum or less often with many sums: intervals belong to the next stack sampled for the
-- sum, until then to the row without a stack, so times always add up. Preempted time has no stack; for a process that ended
-- before end_time the stack is '<gone>' or empty. idle follows py_stack and system call, as in ebpf_off_cpu. Intervals without
-- room in the kernel's map are in rows with host_pid 0, a row per cause.
CREATE TABLE IF NOT EXISTS ebpf_off_cpu_profile
(
#include "tables/thread_columns.inc"
    count UInt64 CODEC(ZSTD),
    off_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    min_ns UInt64 CODEC(ZSTD),
    max_ns UInt64 CODEC(ZSTD),
    state LowCardinality(String),
    cause LowCardinality(String),
    idle UInt8,
    syscall LowCardinality(String),
    kernel_stack Array(LowCardinality(String)) CODEC(ZSTD),
    user_stack Array(LowCardinality(String)) CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    waker_pid UInt32 CODEC(Delta, ZSTD),
    waker_tid UInt32 CODEC(Delta, ZSTD),
    waker_host_tid UInt32 CODEC(Delta, ZSTD),
    waker_comm LowCardinality(String),
    waker_thread_name LowCardinality(String),
    waker_stack Array(LowCardinality(String)) CODEC(ZSTD),
    off_ms Float64 ALIAS off_ns / 1e6
)
#include "tables/thread_engine.inc"
