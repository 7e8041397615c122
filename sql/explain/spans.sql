-- The spans of one trace, for `underspan explain`.
SELECT
    SpanId AS span_id,
    ParentSpanId AS parent_id,
    SpanName AS name,
    SpanKind IN ('Server', 'SPAN_KIND_SERVER') AS is_server,
    ServiceName AS service,
    if(ResourceAttributes['k8s.node.name'] != '',
       ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name']) AS host,
    if(ResourceAttributes['k8s.pod.uid'] != '',
       ResourceAttributes['k8s.pod.uid'], ResourceAttributes['container.id']) AS container,
    toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
        SpanAttributes['process.pid'], ResourceAttributes['process.pid'])) AS pid,
    toUInt32OrZero(SpanAttributes['thread.id']) AS tid,
    intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
    start_us + intDiv(Duration, 1000) AS end_us
FROM otel_traces
WHERE TraceId = {trace_id:String}
ORDER BY start_us, end_us DESC
LIMIT 1000
