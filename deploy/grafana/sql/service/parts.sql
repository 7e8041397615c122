-- Where does the time of a request go, over time? Milliseconds of each part per request, of all requests; the stack is as high as the mean
-- request is long. No line: not measured, then its time is in another part or before the first byte was seen.
WITH toFloat64(weight) AS w
SELECT
    $__timeInterval(start_time) AS time,
    sum(if(has(not_measured, 'accept') AND accept_queue_ns = 0, NULL, accept_queue_ns) * w) / 1e6 / sum(count * w) AS "accept queue",
    sum(if(has(not_measured, 'arrival') AND client_wait_ns = 0, NULL, client_wait_ns) * w) / 1e6 / sum(count * w) AS "wait for the client",
    sum(if(has(not_measured, 'arrival') AND queue_ns = 0, NULL, queue_ns) * w) / 1e6 / sum(count * w) AS "queue",
    sum(pool_wait_ns * w) / 1e6 / sum(count * w) AS "pool",
    sum(cpu_ns * w) / 1e6 / sum(count * w) AS "CPU",
    sum(runq_ns * w) / 1e6 / sum(count * w) AS "run queue",
    sum(throttled_ns * w) / 1e6 / sum(count * w) AS "CPU quota",
    sum(if(has(not_measured, 'gil') AND gil_ns = 0, NULL, gil_ns) * w) / 1e6 / sum(count * w) AS "GIL",
    sum(if(has(not_measured, 'gc') AND gc_own_ns = 0, NULL, gc_own_ns) * w) / 1e6 / sum(count * w) AS "GC (own)",
    sum(if(has(not_measured, 'gc') AND gc_sibling_ns = 0, NULL, gc_sibling_ns) * w) / 1e6 / sum(count * w) AS "GC of other threads",
    sum(lock_ns * w) / 1e6 / sum(count * w) AS "lock",
    sum(net_ns * w) / 1e6 / sum(count * w) AS "network",
    sum(disk_ns * w) / 1e6 / sum(count * w) AS "disk",
    sum(fault_ns * w) / 1e6 / sum(count * w) AS "page faults",
    sum(sleep_ns * w) / 1e6 / sum(count * w) AS "sleep",
    sum(pipe_ns * w) / 1e6 / sum(count * w) AS "pipe",
    sum(child_ns * w) / 1e6 / sum(count * w) AS "child process",
    sum(other_ns * w) / 1e6 / sum(count * w) AS "other waits",
    sum(await_ns * w) / 1e6 / sum(count * w) AS "await",
    sum(loop_busy_ns * w) / 1e6 / sum(count * w) AS "busy loop",
    sum(client_slow_ns * w) / 1e6 / sum(count * w) AS "slow client"
FROM ebpf_request_profile
WHERE $__timeFilter(start_time)
#include "chosen.inc"
GROUP BY time
ORDER BY time
