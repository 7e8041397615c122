-- How many threads were ready to run and had no CPU, over time? Average of all threads of watched processes, per host; the CPU quota counts
-- as well.
SELECT
    $__timeInterval(start_time) AS time, toString(ebpf_off_cpu_profile.host) AS host,
    sum(runq_ns * toFloat64(weight)) / 1e9 / $__interval_s AS threads
FROM ebpf_off_cpu_profile
WHERE $__timeFilter(start_time)
#include "chosen.inc"
GROUP BY time, host
ORDER BY time, host
