-- When did a CPU quota keep processes from running, over time? Seconds of CPU withheld per second, per cgroup; each window counts once,
-- however many processes were in it.
SELECT $__timeInterval(end_time) AS time, concat(host, ' ', cgroup) AS cgroup_of, sum(throttled) / 1e9 / $__interval_s AS withheld
FROM
(
    SELECT toString(ebpf_cpu_throttle.host) AS host, cgroup_id, toString(ebpf_cpu_throttle.cgroup) AS cgroup, end_time, max(throttled_ns * weight) AS throttled
    FROM ebpf_cpu_throttle
    WHERE $__timeFilter(start_time)
#include "chosen.inc"
    GROUP BY host, cgroup_id, cgroup, end_time
)
GROUP BY time, cgroup_of
ORDER BY time, cgroup_of
