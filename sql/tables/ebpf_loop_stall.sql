-- Stalls of event loops (asyncio, uvloop, gevent, trio): the loop's thread did not poll for loop_stall.min_duration_us or longer.
-- start_time: a poll (epoll_wait, epoll_pwait) of the loop's descriptor returned; end_time: the next poll of the same descriptor
-- began, with or without a timeout. In between the loop ran the callbacks of one turn and served no further connections. A loop
-- that is stopped and started again counts as not polling in between.
-- The parts add up to duration_ns: cpu (the remainder), runq (runnable without a CPU, including cgroup quotas), asleep in gil,
-- lock, net, disk, sleep, other. NULL: not measured (the loop was not watched from the begin; gil: not glibc, counted as lock);
-- such time is in other.
-- waiting: descriptors ready at the next poll; a listener counts once, the wake-up by threads once. py_stack, leaf first: during
-- the longest sleep if the thread slept for most of the stall, otherwise on a CPU; stack_at_ns: when, since start_time.
CREATE TABLE IF NOT EXISTS ebpf_loop_stall
(
#include "tables/thread_columns.inc"
    loop LowCardinality(String),
    cpu_ns UInt64 CODEC(ZSTD),
    runq_ns UInt64 CODEC(ZSTD),
    gil_ns Nullable(UInt64) CODEC(ZSTD),
    lock_ns Nullable(UInt64) CODEC(ZSTD),
    net_ns Nullable(UInt64) CODEC(ZSTD),
    disk_ns Nullable(UInt64) CODEC(ZSTD),
    sleep_ns Nullable(UInt64) CODEC(ZSTD),
    other_ns UInt64 CODEC(ZSTD),
    waiting Nullable(UInt64) CODEC(ZSTD),
    stack_at_ns Nullable(UInt64) CODEC(ZSTD),
    py_stack Array(LowCardinality(String)) CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
