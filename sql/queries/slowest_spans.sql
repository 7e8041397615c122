-- Which server spans of the last hour took longest from the call to the end, and where did the time go? Milliseconds, NULL: not
-- measured; see views/request_time.sql.
SELECT
    trace_id, service, span_name,
    round(total_ms, 1) AS total,
    round(accept_ms, 1) AS accept_queue,
    round(handoff_ms, 1) AS handoff,
    round(gc_ms, 1) AS gc,
    round(handler_ms, 1) AS handler,
    round(rest_ms, 1) AS rest,
    round(span_ms, 1) AS span_says,
    not_measured
FROM request_time(from = now() - INTERVAL 1 HOUR, to = now())
ORDER BY total DESC, trace_id, span_id
LIMIT 20;
