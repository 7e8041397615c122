-- Waits for the GIL: pid, tid are the waiting thread's, start_time to end_time is the time inside take_gil().
-- holder_tid held the GIL when the wait began; holders are all that held it meanwhile, once each, as they came, with
-- their shares: of more than eight those with the smallest share the last place, with a tid of 0 (else: not known).
-- dropper_tid gave it away at the end; 0: not known, or the wait was not over when the agent stopped. runq_ns at the
-- end the thread had been woken and got no CPU, or lost it again before it was out of take_gil(). forced_ns right before the wait (not within it) the thread,
-- told to give the GIL away, waited until somebody had taken it; not known by the method 'callsite'.
-- py_stack is where the waiter was, holder_py_stack what
-- the thread holder_tid ran with the GIL, or was at when it gave it away; both innermost first, of waits of a millisecond
-- and longer (gil_wait.stack_min_us), empty where they could not be read. <gone>: that code does not exist any more;
-- <unread>: it could not be read, or too much had to be at once; <cut>: the stack goes on.
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
