-- Which requests were slowest? By the server's time (without waits for the client). Click request_id for the parts, trace_id for the trace;
-- explain: the command that prints causes and fixes.
SELECT
    fromUnixTimestamp64Micro(start_us, 'UTC') AS time, request_id, trace_id, host, pid, method, path, status,
    round((duration_ns - ifNull(client_wait_ns, 0) - client_slow_ns) / 1e6, 1) AS server_ms,
    round((ifNull(accept_queue_ns, 0) + ifNull(queue_ns, 0) + pool_wait_ns + runq_ns + throttled_ns + ifNull(gil_ns, 0) + ifNull(gc_sibling_ns, 0)
        + loop_busy_ns) / 1e6, 1) AS hidden_ms,
    round(accept_queue_ns / 1e6, 1) AS accept_queue, round(queue_ns / 1e6, 1) AS queue, round(pool_wait_ns / 1e6, 1) AS pool,
    round(gil_ns / 1e6, 1) AS gil, round(gc_sibling_ns / 1e6, 1) AS gc_of_others, round(loop_busy_ns / 1e6, 1) AS busy_loop,
    round(lock_ns / 1e6, 1) AS lock, round(net_ns / 1e6, 1) AS network, round(cpu_ns / 1e6, 1) AS cpu,
    arrayStringConcat(not_measured, ' ') AS not_measured,
    concat('underspan explain ', request_id) AS explain
FROM
(
#include "requests/slowest.sql"
)
ORDER BY server_ms DESC, request_id
