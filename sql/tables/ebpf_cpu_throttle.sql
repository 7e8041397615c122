-- Times in which a CPU quota (cpu.max, cpu.cfs_quota_us, a Kubernetes limit) stopped a process: a row per tracked process and
-- throttled window of up to a second. The quota belongs to `cgroup`, the process's cgroup or an ancestor. All processes below
-- are stopped together and have such a row each: for sums by cgroup, select a single process (LIMIT 1 BY host, cgroup_id,
-- end_time). tid is 0: all threads stop.
-- start_time: the quota was used up; end_time: end of the last consecutive period with a used-up quota. In between, each period
-- begins with the quota's worth of running. If the end of a period was not seen, the row spans the second between two readings.
-- throttled_ns, throttled_periods and periods: increase of cpu.stat's throttled_usec (v1: throttled_time), nr_throttled and
-- nr_periods since the process's last row; *_total: the values. throttled_ns sums over the CPUs on which the cgroup had runnable
-- threads, so may exceed the row's duration.
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
