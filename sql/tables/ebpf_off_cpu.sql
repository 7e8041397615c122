-- Intervals of threads off the CPU. runq_ns: the runnable part, from the wake-up; for a preempted thread (cause preempt, state
-- R) the whole interval. state: as in ps; F: frozen by its cgroup. cause: gil, lock (futex, file lock, System V semaphore), net,
-- disk (content, names and attributes of files), page_fault, sleep, poll (several descriptors), pipe, child, preempt, other (with state T
-- or t: stopped by a signal or a debugger; F: frozen, as by docker pause). idle: the thread had no work (accept(), an event loop; by the Python stack: a pool's worker waiting for
-- work, a thread whose own function waits in Queue.get(), Condition.wait() or Event.wait()).
-- waker_*: the thread that ended the interval; 0: none (a timer, a device). Stacks are leaf first; py_stack is empty if the
-- thread ran no Python or the return to user mode could not be watched, and has <gone>, <unread> and <cut> as in ebpf_gil_wait.
-- lock_address: the lock of a wait in futex(): the address of the futex word (a lock, a semaphore, a condition), of CPython 3.13+ the
-- address of the PyMutex, whose waiters sleep on words of their own. Each process has its own addresses, and memory is used again: a lock is
-- host, boot_id, host_pid, address and time. 0: no lock, the GIL, several futexes at once (futex_waitv), or a word that belongs to a single wait.
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
    lock_address UInt64 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    off_cpu_ms Float64 ALIAS duration_ns / 1e6,
    runq_ms Float64 ALIAS runq_ns / 1e6
)
#include "tables/thread_engine.inc"
