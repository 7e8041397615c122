-- Requests by process with the sums of their parts, for `underspan top --since`. busy_max: threads, with the one that read the request;
-- waiting_max: connections that waited; each the most that a request met when read. A part is the sum over the requests of which it
-- is known; lacked: the parts of which it is not known for all requests. NULL: not known of any.
SELECT
    p.host AS host, p.host_pid AS host_pid, anyLast(p.comm) AS comm, anyLast(p.service) AS service,
    sum(toFloat64(p.weight)) AS requests, max(p.busy_threads) + 1 AS busy_max, max(p.queue_depth) AS waiting_max,
    sum(p.accept_queue_ns * toFloat64(p.weight)) AS accept_queue_ns, sum(p.client_wait_ns * toFloat64(p.weight)) AS client_wait_ns,
    sum(p.queue_ns * toFloat64(p.weight)) AS queue_ns, sum(p.pool_wait_ns * toFloat64(p.weight)) AS pool_wait_ns,
    sum(p.cpu_ns * toFloat64(p.weight)) AS cpu_ns, sum(p.runq_ns * toFloat64(p.weight)) AS runq_ns,
    sum(p.throttled_ns * toFloat64(p.weight)) AS throttled_ns, sum(p.gil_ns * toFloat64(p.weight)) AS gil_ns,
    sum(p.gc_own_ns * toFloat64(p.weight)) AS gc_own_ns, sum(p.gc_sibling_ns * toFloat64(p.weight)) AS gc_sibling_ns,
    sum(p.lock_ns * toFloat64(p.weight)) AS lock_ns, sum(p.net_ns * toFloat64(p.weight)) AS net_ns,
    sum(p.disk_ns * toFloat64(p.weight)) AS disk_ns, sum(p.fault_ns * toFloat64(p.weight)) AS fault_ns,
    sum(p.sleep_ns * toFloat64(p.weight)) AS sleep_ns, sum(p.pipe_ns * toFloat64(p.weight)) AS pipe_ns,
    sum(p.child_ns * toFloat64(p.weight)) AS child_ns, sum(p.other_ns * toFloat64(p.weight)) AS other_ns,
    sum(p.await_ns * toFloat64(p.weight)) AS await_ns, sum(p.loop_busy_ns * toFloat64(p.weight)) AS loop_busy_ns,
    sum(p.client_slow_ns * toFloat64(p.weight)) AS client_slow_ns,
    arrayFilter((part, n) -> n < count(), ['accept_queue', 'client_wait', 'queue', 'gil', 'gc_own', 'gc_sibling'],
        [count(p.accept_queue_ns), count(p.client_wait_ns), count(p.queue_ns), count(p.gil_ns), count(p.gc_own_ns), count(p.gc_sibling_ns)]) AS lacked
FROM ebpf_request AS p
#include "window/chosen.inc"
    AND p.host_pid != 0
GROUP BY host, host_pid
ORDER BY requests DESC, host, host_pid
LIMIT 100000
