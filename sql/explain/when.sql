-- Time of a trace in seconds, for `underspan explain`: if the collector's exporter keeps this table, spans are found at once.
SELECT toUnixTimestamp(min(Start)) - 1 AS first, toUnixTimestamp(max(End)) + 1 AS last
FROM otel_traces_trace_id_ts
WHERE TraceId = {trace_id:String}
HAVING count() > 0
