-- Requests by process with the sums of their parts, for `underspan top --since`. busy_max: threads, with the one that read the request;
-- waiting_max: connections that waited; each the most that a request met when read. NULL: not known.
-- Which rows: they ended in the window, of the host, the pids (of their namespace or the host's); the lines behind --service: apply where a
-- service is asked for, those behind --spans: where the database also has spans. As in sql/offcpu/stacks.sql.
SELECT
    p.host AS host, p.host_pid AS host_pid, anyLast(p.comm) AS comm, anyLast(p.service) AS service,
    sum(toFloat64(p.weight)) AS requests, max(p.busy_threads) + 1 AS busy_max, max(p.queue_depth) AS waiting_max,
    sum(ifNull(p.accept_queue_ns, 0) * toFloat64(p.weight)) AS accept_queue_ns, sum(ifNull(p.client_wait_ns, 0) * toFloat64(p.weight)) AS client_wait_ns,
    sum(ifNull(p.queue_ns, 0) * toFloat64(p.weight)) AS queue_ns, sum(ifNull(p.pool_wait_ns, 0) * toFloat64(p.weight)) AS pool_wait_ns,
    sum(ifNull(p.cpu_ns, 0) * toFloat64(p.weight)) AS cpu_ns, sum(ifNull(p.runq_ns, 0) * toFloat64(p.weight)) AS runq_ns,
    sum(ifNull(p.throttled_ns, 0) * toFloat64(p.weight)) AS throttled_ns, sum(ifNull(p.gil_ns, 0) * toFloat64(p.weight)) AS gil_ns,
    sum(ifNull(p.gc_own_ns, 0) * toFloat64(p.weight)) AS gc_own_ns, sum(ifNull(p.gc_sibling_ns, 0) * toFloat64(p.weight)) AS gc_sibling_ns,
    sum(ifNull(p.lock_ns, 0) * toFloat64(p.weight)) AS lock_ns, sum(ifNull(p.net_ns, 0) * toFloat64(p.weight)) AS net_ns,
    sum(ifNull(p.disk_ns, 0) * toFloat64(p.weight)) AS disk_ns, sum(ifNull(p.fault_ns, 0) * toFloat64(p.weight)) AS fault_ns,
    sum(ifNull(p.sleep_ns, 0) * toFloat64(p.weight)) AS sleep_ns, sum(ifNull(p.pipe_ns, 0) * toFloat64(p.weight)) AS pipe_ns,
    sum(ifNull(p.child_ns, 0) * toFloat64(p.weight)) AS child_ns, sum(ifNull(p.other_ns, 0) * toFloat64(p.weight)) AS other_ns,
    sum(ifNull(p.await_ns, 0) * toFloat64(p.weight)) AS await_ns, sum(ifNull(p.loop_busy_ns, 0) * toFloat64(p.weight)) AS loop_busy_ns,
    sum(ifNull(p.client_slow_ns, 0) * toFloat64(p.weight)) AS client_slow_ns
FROM ebpf_request AS p
#include "timeline/chosen.inc"
    AND p.host_pid != 0
GROUP BY host, host_pid
ORDER BY requests DESC, host, host_pid
LIMIT 100000
