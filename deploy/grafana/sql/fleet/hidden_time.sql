-- In which waits that no span shows do requests stand, over time? How many requests stood in each at once, on average (seconds of wait
-- per second). All requests of all processes, from the sums of the kernel. No line: not measured, which is not the same as 0.
WITH toFloat64(weight) AS w
SELECT
    $__timeInterval(start_time) AS time,
    sum(if(has(not_measured, 'accept') AND accept_queue_ns = 0, NULL, accept_queue_ns) * w) / 1e9 / $__interval_s AS "accept queue",
    sum(if(has(not_measured, 'arrival') AND queue_ns = 0, NULL, queue_ns) * w) / 1e9 / $__interval_s AS "queue",
    sum(pool_wait_ns * w) / 1e9 / $__interval_s AS "pool",
    sum(runq_ns * w) / 1e9 / $__interval_s AS "run queue",
    sum(throttled_ns * w) / 1e9 / $__interval_s AS "CPU quota",
    sum(if(has(not_measured, 'gil') AND gil_ns = 0, NULL, gil_ns) * w) / 1e9 / $__interval_s AS "GIL",
    sum(if(has(not_measured, 'gc') AND gc_sibling_ns = 0, NULL, gc_sibling_ns) * w) / 1e9 / $__interval_s AS "GC of other threads",
    sum(loop_busy_ns * w) / 1e9 / $__interval_s AS "busy loop"
FROM ebpf_request_profile
WHERE $__timeFilter(start_time)
#include "chosen.inc"
GROUP BY time
ORDER BY time
