-- Which services starve their workers? Per service and minute of the last hour: how long did requests wait for a
-- thread although their bytes were there, and how does that compare with what their spans say? Of requests whose hand-off was
-- seen; those that the governor left out are counted by the others' weight.
WITH toUInt64(round(weight * 1000)) AS thousandths -- quantiles want whole weights, and here whole microseconds
SELECT
    toStartOfMinute(span_time) AS minute, service, host,
    round(sum(weight)) AS requests,
    round(quantileExactWeighted(0.5)(toUInt64(round(assumeNotNull(handoff_ms) * 1000)), thousandths) / 1e3, 1) AS handoff_p50_ms,
    round(quantileExactWeighted(0.99)(toUInt64(round(assumeNotNull(handoff_ms) * 1000)), thousandths) / 1e3, 1) AS handoff_p99_ms,
    round(max(assumeNotNull(handoff_ms)), 1) AS handoff_max_ms,
    round(quantileExactWeighted(0.99)(toUInt64(round(span_ms * 1000)), thousandths) / 1e3, 1) AS span_p99_ms
FROM request_time(from = toStartOfMinute(now() - INTERVAL 1 HOUR), to = now())
WHERE queue != '' AND handoff_ms IS NOT NULL
GROUP BY minute, service, host
HAVING handoff_p99_ms > 10
ORDER BY minute, handoff_p99_ms DESC, service, host;
