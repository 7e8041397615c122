-- The spans of a trace, for `underspan explain`; duplicates are removed. Returns one span more than shown.
SELECT span_id, parent_id, span_name AS name, kind, service, host, container_id, pid, tid, start_us, end_us
FROM otel_span
WHERE trace_id = {trace_id:String} AND time >= {first:DateTime} AND time <= {last:DateTime}
ORDER BY start_us, end_us DESC
LIMIT 1 BY span_id, kind
LIMIT 1001
