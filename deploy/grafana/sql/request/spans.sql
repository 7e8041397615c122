-- What do the spans of the trace show, beside the time that no span shows? Spans as sent, and the parts of the request (service
-- underspan) as spans of the same form. offset_ms: after the first span. Needs the table of spans and its views (schema with traces).
SELECT
    (toUnixTimestamp64Nano(Timestamp) - min(toUnixTimestamp64Nano(Timestamp)) OVER (PARTITION BY TraceId)) / 1e6 AS offset_ms,
    Duration / 1e6 AS ms, SpanName AS span, ServiceName AS service, kind, TraceId AS trace_id, SpanId AS span_id, ParentSpanId AS parent_id
FROM
(
    SELECT Timestamp, Duration, SpanName, toString(ServiceName) AS ServiceName, toString(SpanKind) AS kind, TraceId, SpanId, ParentSpanId
    FROM otel_traces
    UNION ALL
    SELECT Timestamp, Duration, SpanName, ServiceName, 'hidden' AS kind, TraceId, SpanId, ParentSpanId
    FROM hidden_span
)
WHERE Timestamp >= $__fromTime - INTERVAL 1 DAY AND Timestamp <= $__toTime + INTERVAL 1 DAY
    AND TraceId IN
    (
        SELECT trace_id
        FROM ebpf_request
        WHERE trace_id != '' AND
#include "this_request.inc"
        UNION ALL
        SELECT '${trace_id:percentencode}' AS trace_id WHERE '${trace_id:percentencode}' != ''
    )
ORDER BY TraceId, offset_ms, ms DESC
LIMIT 1000
