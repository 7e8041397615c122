-- What the view request reads in place of otel_span where there is none, for `underspan explain`.
SELECT '' AS trace_id, '' AS span_id, '' AS parent_id, '' AS service, '' AS span_name, '' AS kind, '' AS host, '' AS container_id,
    '' AS pod_uid, toDateTime64(0, 9) AS time, toInt64(0) AS start_us, toInt64(0) AS end_us, toUInt32(0) AS pid, toUInt32(0) AS tid,
    toUInt64(0) AS said
LIMIT 0
