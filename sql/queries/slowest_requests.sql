-- Which requests of the last hour were slowest, and where did their time go? Milliseconds; see views/request_time.sql.
SELECT
    trace_id, service, span_name,
    round(total_ms, 1) AS total,
    round(handoff_ms, 1) AS handoff,
    round(gc_ms, 1) AS gc,
    round(handler_ms, 1) AS handler,
    round(rest_ms, 1) AS rest,
    round(span_ms, 1) AS span_says
FROM request_time(from = now() - INTERVAL 1 HOUR, to = now())
ORDER BY total DESC
LIMIT 20;
