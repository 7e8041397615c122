-- How many threads were busy with requests, and how many requests waited for one, over time? Averages of all requests of servers with threads
-- and pools (event loops share one thread: see loop stalls). Waiting: in the accept queue, unread, or before a thread of a pool.
WITH
    toFloat64(weight) AS w,
    if(has(not_measured, 'accept') AND accept_queue_ns = 0, NULL, accept_queue_ns) AS accepting,
    if(has(not_measured, 'arrival') AND queue_ns = 0, NULL, queue_ns) AS reading
SELECT
    $__timeInterval(start_time) AS time,
    sum((duration_sum_ns - accept_queue_ns - client_wait_ns - queue_ns - pool_wait_ns) * w) / 1e9 / $__interval_s AS "threads busy",
    sum(accepting * w) / 1e9 / $__interval_s AS "waiting in the accept queue",
    sum(reading * w) / 1e9 / $__interval_s AS "waiting to be read",
    sum(pool_wait_ns * w) / 1e9 / $__interval_s AS "waiting for a thread of the pool"
FROM ebpf_request_profile
WHERE $__timeFilter(start_time) AND model != 'loop'
#include "chosen.inc"
GROUP BY time
ORDER BY time
