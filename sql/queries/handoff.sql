-- Which services starve their workers? Per service and minute of the last hour: how long did requests wait for a
-- thread although their bytes were there, and how does that compare with what their spans say?
SELECT
    toStartOfMinute(span_time) AS minute, service, host,
    count() AS requests,
    round(quantile(0.5)(handoff_ms), 1) AS handoff_p50_ms,
    round(quantile(0.99)(handoff_ms), 1) AS handoff_p99_ms,
    round(max(handoff_ms), 1) AS handoff_max_ms,
    round(quantile(0.99)(span_ms), 1) AS span_p99_ms
FROM request_time(from = now() - INTERVAL 1 HOUR, to = now())
WHERE queue != ''
GROUP BY minute, service, host
HAVING handoff_p99_ms > 10
ORDER BY minute, handoff_p99_ms DESC;
