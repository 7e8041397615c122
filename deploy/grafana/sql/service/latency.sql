-- How long do requests take, over time? Quantiles of all requests from a histogram whose buckets double, interpolated within one, so right to
-- a factor of two at worst; never above the longest request seen.
WITH
#include "quantiles.inc"
SELECT time, quantiles_ms[1] AS p50, quantiles_ms[2] AS p90, quantiles_ms[3] AS p99, longest_us / 1e3 AS longest
FROM
(
    SELECT
        $__timeInterval(start_time) AS time,
        sumForEach(arrayMap(n -> n * toFloat64(weight), histogram)) AS counts,
        max(max_ns) / 1e3 AS longest_us
    FROM ebpf_request_profile
    WHERE $__timeFilter(start_time)
#include "chosen.inc"
    GROUP BY time
)
ORDER BY time
