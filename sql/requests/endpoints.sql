-- The endpoints with most of a column in sum ({by}: hidden_ms or a part), for `underspan requests`. Numbers, UUIDs and long hexadecimal
-- segments of a path are '*'. Sums and quantiles count each row `weight` times; a sum is NULL where no row has a value, and
-- <part>_unmeasured counts the requests without one. server_ns: without the waits for the client. Endpoints with 0 of the column only if
-- {without:UInt8} is 1; NULL is not 0.
WITH
    toFloat64(r.weight) AS w,
    toUInt64(round(w * 1000)) AS thousandths, -- quantiles need integer weights
    r.duration_ns - ifNull(r.client_wait_ns, 0) - r.client_slow_ns AS server_ns,
    quantilesExactWeighted(0.5, 0.99)(server_ns, thousandths) AS of_server_ns
SELECT
    toString(r.method) AS method,
    arrayStringConcat(arrayMap(
        s -> if(match(s, '^[0-9]+$') -- apart from the rest, whose pattern takes longer
            OR (length(s) >= 16 AND match(s, '^([0-9a-fA-F]+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$')), '*', s),
        splitByChar('/', r.path)), '/') AS endpoint,
    r.server_port AS server_port,
    sum(w) AS requests, count() AS row_count,
    sum(server_ns * w) AS server_sum_ns,
    of_server_ns[1] AS server_p50_ns, of_server_ns[2] AS server_p99_ns,
    max(server_ns) AS server_max_ns,
    1e6 * sum(r.hidden_ms * w) AS hidden_ns,
    sum(r.accept_queue_ns * w) AS accept_queue_ns, sum(r.client_wait_ns * w) AS client_wait_ns, sum(r.queue_ns * w) AS queue_ns,
    sum(r.pool_wait_ns * w) AS pool_wait_ns, sum(r.cpu_ns * w) AS cpu_ns, sum(r.runq_ns * w) AS runq_ns,
    sum(r.throttled_ns * w) AS throttled_ns, sum(r.gil_ns * w) AS gil_ns, sum(r.gc_own_ns * w) AS gc_own_ns,
    sum(r.gc_sibling_ns * w) AS gc_sibling_ns, sum(r.lock_ns * w) AS lock_ns, sum(r.net_ns * w) AS net_ns, sum(r.disk_ns * w) AS disk_ns,
    sum(r.fault_ns * w) AS fault_ns, sum(r.sleep_ns * w) AS sleep_ns, sum(r.pipe_ns * w) AS pipe_ns, sum(r.child_ns * w) AS child_ns,
    sum(r.other_ns * w) AS other_ns, sum(r.await_ns * w) AS await_ns, sum(r.loop_busy_ns * w) AS loop_busy_ns,
    sum(r.client_slow_ns * w) AS client_slow_ns,
    sumIf(w, r.accept_queue_ns IS NULL) AS accept_queue_unmeasured, sumIf(w, r.client_wait_ns IS NULL) AS client_wait_unmeasured,
    sumIf(w, r.queue_ns IS NULL) AS queue_unmeasured, sumIf(w, r.gil_ns IS NULL) AS gil_unmeasured,
    sumIf(w, r.gc_own_ns IS NULL) AS gc_own_unmeasured, sumIf(w, r.gc_sibling_ns IS NULL) AS gc_sibling_unmeasured,
    sum(r.{by:Identifier} * w) AS by_sum,
    count() OVER () AS endpoints
FROM ebpf_request AS r
#include "requests/chosen.inc"
GROUP BY method, endpoint, server_port
HAVING {without:UInt8} OR by_sum IS NULL OR by_sum > 0
ORDER BY by_sum DESC NULLS LAST, server_sum_ns DESC, endpoint, method, server_port
LIMIT {top:UInt32}
