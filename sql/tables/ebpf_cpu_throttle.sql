-- When a CPU quota (cpu.max, cpu.cfs_quota_us, a Kubernetes limit) kept a process from running: a row per tracked process and
-- throttled window, a second at most. The quota is that of `cgroup`, which is the process's own or one above it; all processes
-- below it are stopped together, so each of them has such a row: take one of them (LIMIT 1 BY host, cgroup_id, end_time) for
-- sums by cgroup. tid is 0: all threads stop.
-- start_time: the quota was used up, end_time: the end of the period in which that was so for the last time in a row;
-- in between, each period begins with the quota's worth of running. Where the end of a period went unseen the row spans
-- the time between two readings, a second.
-- throttled_ns, throttled_periods and periods are the increase of cpu.stat's throttled_usec (v1: throttled_time),
-- nr_throttled and nr_periods since the process's last row, *_total its values. throttled_ns adds up over the CPUs on which
-- the cgroup had something to run, and so may exceed the row's duration.
CREATE TABLE IF NOT EXISTS ebpf_cpu_throttle
(
#include "tables/thread_columns.inc"
    cgroup LowCardinality(String),
    cgroup_id UInt64 CODEC(ZSTD),
    cgroup_level UInt32 CODEC(ZSTD),
    quota_us UInt64 CODEC(ZSTD),
    period_us UInt64 CODEC(ZSTD),
    throttled_ns UInt64 CODEC(ZSTD),
    throttled_periods UInt32 CODEC(ZSTD),
    periods UInt32 CODEC(ZSTD),
    throttled_ns_total UInt64 CODEC(Delta, ZSTD),
    throttled_periods_total UInt32 CODEC(Delta, ZSTD),
    periods_total UInt32 CODEC(Delta, ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6
)
#include "tables/thread_engine.inc"
