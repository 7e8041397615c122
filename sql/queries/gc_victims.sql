-- Which requests of the last hour paid for collections triggered by different requests or threads? Processes without watched
-- collections are not included: see unwatched.sql.
SELECT
    trace_id, service, span_name, host, left(container_id, 12) AS container, pid,
    round(total_ms, 1) AS total,
    round(gc_others_ms, 1) AS gc_of_others,
    round(100 * gc_others_ms / total_ms) AS percent
FROM request_time(from = now() - INTERVAL 1 HOUR, to = now())
WHERE gc_others_ms > 1
ORDER BY gc_others_ms DESC, trace_id, span_id
LIMIT 20;
