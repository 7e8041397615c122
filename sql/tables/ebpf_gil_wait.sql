-- Waits for the GIL; pid, tid: the waiting thread; start_time to end_time: the time inside take_gil().
-- holder_tid: holder at the wait's begin. holders: all holders during the wait, once each, in order, with shares; with more than
-- eight, the last entry sums those with the smallest shares and has tid 0 (otherwise tid 0 means unknown). dropper_tid: thread
-- that released the GIL at the end; 0: unknown, or the wait was open when the agent stopped.
-- runq_ns: time at the end in which the woken thread had no CPU, or had lost the CPU before leaving take_gil(). forced_ns: time
-- right before the wait, not within, in which the thread, told to release the GIL, waited until a waiter had taken the GIL;
-- unknown to the method 'callsite'.
-- py_stack: of the waiter. holder_py_stack: of holder_tid while running with the GIL, or at the release. Both innermost first,
-- for waits of a millisecond and longer (gil_wait.stack_min_us); empty if unreadable. <gone>: code freed before the read;
-- <unread>: unreadable, or too many reads at a time; <cut>: the stack continues.
CREATE TABLE IF NOT EXISTS ebpf_gil_wait
(
#include "tables/thread_columns.inc"
    runq_ns UInt64 CODEC(ZSTD),
    forced_ns UInt64 CODEC(ZSTD),
    holder_tid UInt32 CODEC(Delta, ZSTD),
    holder_host_tid UInt32 CODEC(Delta, ZSTD),
    holder_thread_name LowCardinality(String),
    holder_py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    holders Array(Tuple(tid UInt32, ns UInt64, thread_name String)) CODEC(ZSTD),
    dropper_tid UInt32 CODEC(Delta, ZSTD),
    dropper_host_tid UInt32 CODEC(Delta, ZSTD),
    dropper_thread_name LowCardinality(String),
    sleeps UInt32 CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    method LowCardinality(String),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
