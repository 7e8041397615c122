-- Time of a trace, for `underspan explain`: if the collector's exporter keeps this table, spans are found at once.
SELECT toString(min(Start) - INTERVAL 1 SECOND) AS first, toString(max(End) + INTERVAL 1 SECOND) AS last
FROM otel_traces_trace_id_ts
WHERE TraceId = {trace_id:String}
HAVING count() > 0
