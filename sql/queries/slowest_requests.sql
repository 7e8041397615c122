-- Which requests of the last hour were slowest, and where did the time go? From the request ledger, with or without spans; parts
-- in milliseconds, NULL: not measured; see views/request.sql. Details of a request: `underspan explain REQUEST_ID`.
SELECT
    request_id, trace_id, host, pid, method, path, status,
    round(duration_ms, 1) AS total,
    round(accept_queue_ms, 1) AS accept_queue,
    round(queue_ms, 1) AS queue,
    round(pool_wait_ms, 1) AS pool_wait,
    round(loop_busy_ms, 1) AS loop_busy,
    round(runq_ms, 1) AS run_queue,
    round(gil_ms, 1) AS gil,
    round(gc_sibling_ms, 1) AS gc_of_others,
    round(lock_ms, 1) AS lock,
    round(net_ms, 1) AS net,
    round(cpu_ms, 1) AS cpu,
    round(span_ms, 1) AS span_says,
    not_measured
FROM request(from = now64(6, 'UTC') - INTERVAL 1 HOUR, to = now64(6, 'UTC'))
ORDER BY duration_ms DESC, request_id
LIMIT 20;
