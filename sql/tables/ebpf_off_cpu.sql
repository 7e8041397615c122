-- Intervals in which a thread was off the CPU. runq_ns of them it was runnable: since its wake-up, or, when it was
-- preempted (cause preempt, state R), all the time. state is what ps shows; cause is what it waited for: gil, lock,
-- net, disk, page_fault, sleep, poll (several descriptors), pipe, child, preempt, other. idle: it had nothing to do
-- (accept(), an event loop; by its Python stack: a pool's worker that waits for work, a thread whose own function waits
-- in Queue.get(), Condition.wait() or Event.wait()).
-- waker_* is the thread that ended it; 0 when none did (a timer, a device). Stacks are leaf first; py_stack is empty
-- where the thread ran no Python or its way back could not be watched, and has <gone>, <unread> and <cut> as
-- ebpf_gil_wait has.
CREATE TABLE IF NOT EXISTS ebpf_off_cpu
(
#include "tables/thread_columns.inc"
    runq_ns UInt64 CODEC(ZSTD),
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
    cpu UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    off_cpu_ms Float64 ALIAS duration_ns / 1e6,
    runq_ms Float64 ALIAS runq_ns / 1e6
)
#include "tables/thread_engine.inc"
