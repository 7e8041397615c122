-- Replaces otel_span in the view request if the table of spans is missing, for `underspan explain`.
SELECT '' AS trace_id, '' AS span_id, '' AS parent_id, '' AS service, '' AS span_name, '' AS kind, '' AS host, '' AS container_id,
    '' AS pod_uid, toDateTime64(0, 9) AS time, toInt64(0) AS start_us, toInt64(0) AS end_us, toUInt32(0) AS pid, toUInt32(0) AS tid,
    toUInt64(0) AS said
LIMIT 0
