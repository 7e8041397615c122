-- Which services are short of workers? Per service and minute of the last hour: how long did requests with arrived bytes wait
-- for a thread, compared with the duration of their spans? Only requests with a seen hand-off; requests left out by the governor
-- are counted by weight.
WITH
    toUInt64(round(weight * 1000)) AS thousandths, -- quantiles need integer weights, and here integer microseconds
    quantilesExactWeighted(0.5, 0.99)(toUInt64(round(assumeNotNull(handoff_ms) * 1000)), thousandths) AS of_handoff_us
SELECT
    toStartOfMinute(span_time) AS minute, service, host,
    round(sum(weight)) AS requests,
    round(of_handoff_us[1] / 1e3, 1) AS handoff_p50_ms,
    round(of_handoff_us[2] / 1e3, 1) AS handoff_p99_ms,
    round(max(assumeNotNull(handoff_ms)), 1) AS handoff_max_ms,
    round(quantileExactWeighted(0.99)(toUInt64(round(span_ms * 1000)), thousandths) / 1e3, 1) AS span_p99_ms
FROM request_time(from = toStartOfMinute(now() - INTERVAL 1 HOUR), to = now())
WHERE queue != '' AND handoff_ms IS NOT NULL
GROUP BY minute, service, host
HAVING handoff_p99_ms > 10
ORDER BY minute, handoff_p99_ms DESC, service, host;
