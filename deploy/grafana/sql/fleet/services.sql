-- Which services are slow, and which hide most of their time? Per service: latency of all requests (quantiles from a histogram whose buckets
-- double, interpolated), the share of the server's time that no span shows, and the largest part of it. Click a service.
-- lower_bound_percent: requests of intervals in which a part of some request was not measured; their hidden share is a lower bound.
-- failed: 5xx, or no answer.
WITH
#include "quantiles.inc"
    ,
    arraySort(part -> (-part.2, part.1), [('accept queue', ifNull(accept_queue, 0)), ('queue', ifNull(queue, 0)), ('pool', ifNull(pool_wait, 0)), ('run queue', ifNull(runq, 0)), ('CPU quota', ifNull(throttled, 0)), ('GIL', ifNull(gil, 0)), ('GC of other threads', ifNull(gc_sibling, 0)), ('busy loop', ifNull(loop_busy, 0))])[1] AS most
SELECT
    service,
    round(requests / dateDiff('second', $__fromTime, $__toTime), 3) AS per_second,
    round(quantiles_ms[1], 1) AS p50_ms, round(quantiles_ms[3], 1) AS p99_ms,
    round(longest_us / 1e3, 1) AS longest_ms,
    round(100 * hidden_ns / nullIf(server_ns, 0), 1) AS hidden_percent,
    round(hidden_ns / requests / 1e6, 1) AS hidden_ms_per_request,
    if(most.2 > 0, most.1, '') AS largest_hidden_part,
    round(100 * failed / requests, 2) AS failed_percent,
    round(100 * lower_bound / requests, 1) AS lower_bound_percent,
    encodeURLComponent(service) AS service_key
FROM
(
    WITH toFloat64(weight) AS w
    SELECT
        toString(ebpf_request_profile.service) AS service,
        sum(count * w) AS requests,
        sumForEach(arrayMap(n -> n * w, histogram)) AS counts,
        max(max_ns) / 1e3 AS longest_us,
        sum((duration_sum_ns - client_wait_ns - client_slow_ns) * w) AS server_ns,
        sum(if(has(not_measured, 'accept') AND accept_queue_ns = 0, NULL, accept_queue_ns) * w) AS accept_queue,
        sum(if(has(not_measured, 'arrival') AND queue_ns = 0, NULL, queue_ns) * w) AS queue,
        sum(pool_wait_ns * w) AS pool_wait,
        sum(runq_ns * w) AS runq,
        sum(throttled_ns * w) AS throttled,
        sum(if(has(not_measured, 'gil') AND gil_ns = 0, NULL, gil_ns) * w) AS gil,
        sum(if(has(not_measured, 'gc') AND gc_sibling_ns = 0, NULL, gc_sibling_ns) * w) AS gc_sibling,
        sum(loop_busy_ns * w) AS loop_busy,
        ifNull(accept_queue, 0) + ifNull(queue, 0) + ifNull(pool_wait, 0) + ifNull(runq, 0) + ifNull(throttled, 0) + ifNull(gil, 0) + ifNull(gc_sibling, 0) + ifNull(loop_busy, 0) AS hidden_ns,
        sumIf(count * w, status_class = '5xx' OR status_class = '') AS failed,
        sumIf(count * w, hasAny(not_measured, ['accept', 'arrival', 'gil', 'gc'])) AS lower_bound
    FROM ebpf_request_profile
    WHERE $__timeFilter(start_time)
#include "chosen.inc"
    GROUP BY service
)
ORDER BY hidden_ns DESC, service
LIMIT 200
