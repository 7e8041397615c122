-- Which endpoints hide most of their time, and in which part? By method, path (ids replaced by *) and port; the sums are of all requests,
-- weighted. Empty: the part was never measured; lower_bound_percent: of so many requests one of these parts was not.
SELECT
    method, endpoint, server_port, round(of.requests, 1) AS requests,
    round(hidden_ns / of.requests / 1e6, 2) AS hidden_ms,
    round(100 * hidden_ns / nullIf(server_sum_ns, 0), 1) AS hidden_percent,
    round(server_p50_ns / 1e6, 1) AS p50_ms, round(server_p99_ns / 1e6, 1) AS p99_ms, round(server_max_ns / 1e6, 1) AS max_ms,
    round(accept_queue_ns / of.requests / 1e6, 2) AS accept_queue, round(queue_ns / of.requests / 1e6, 2) AS queue,
    round(pool_wait_ns / of.requests / 1e6, 2) AS pool, round(runq_ns / of.requests / 1e6, 2) AS run_queue,
    round(throttled_ns / of.requests / 1e6, 2) AS cpu_quota, round(gil_ns / of.requests / 1e6, 2) AS gil,
    round(gc_sibling_ns / of.requests / 1e6, 2) AS gc_of_others, round(loop_busy_ns / of.requests / 1e6, 2) AS busy_loop,
    round(lock_ns / of.requests / 1e6, 2) AS lock, round(net_ns / of.requests / 1e6, 2) AS network,
    round(disk_ns / of.requests / 1e6, 2) AS disk, round(sleep_ns / of.requests / 1e6, 2) AS sleep, round(cpu_ns / of.requests / 1e6, 2) AS cpu,
    round(100 * greatest(accept_queue_unmeasured, queue_unmeasured, gil_unmeasured, gc_sibling_unmeasured) / of.requests, 1) AS lower_bound_percent
FROM
(
#include "requests/endpoints.sql"
) AS of
ORDER BY by_sum DESC NULLS LAST, server_sum_ns DESC, endpoint, method, server_port
