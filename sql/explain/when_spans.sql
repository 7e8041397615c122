-- Time of a trace in seconds, for `underspan explain`, from the spans themselves.
SELECT toUnixTimestamp(min(time)) AS first, toUnixTimestamp(max(time)) + 1 AS last
FROM otel_span
WHERE trace_id = {trace_id:String}
HAVING count() > 0
