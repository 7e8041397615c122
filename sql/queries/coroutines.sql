-- Which coroutines keep an event loop's thread? The last hour by process and by coroutine of a task, the outermost below the loop
-- (asyncio, uvloop): CPU time as samples say, time in which its calls blocked the loop, its share of both, and the innermost Python
-- code of most of it. A task that awaits keeps nothing, so it is not counted meanwhile; a callback is its function.
WITH arrayFirstIndex(f -> match(f, '^(Handle\\.)?_run \\(.*/asyncio/events\\.py:|/asyncio/runners\\.py:|/uvloop/'), py_stack) AS below
SELECT
    host, left(container_id, 12) AS container, pid, host_pid, coroutine,
    round(sum(cpu) / 1e6) AS cpu_ms, round(sum(blocked) / 1e6) AS blocked_ms,
    round(100 * (cpu_ms + blocked_ms) / sum(cpu_ms + blocked_ms) OVER (PARTITION BY host, container_id, pid, host_pid), 1) AS percent,
    argMax(innermost, (cpu + blocked, innermost)) AS mostly_in
FROM
(
    SELECT
        host, container_id, pid, host_pid, replaceRegexpOne(py_stack[below - 1], ':\\d+\\)$', ')') AS coroutine, py_stack[1] AS innermost,
        sum(cpu_ns * weight) AS cpu, sum(blocked_ns * weight) AS blocked
    FROM
    (
        SELECT host, container_id, pid, host_pid, py_stack, duration_ns AS cpu_ns, 0 AS blocked_ns, weight
        FROM ebpf_on_cpu WHERE start_time >= now() - INTERVAL 1 HOUR
        UNION ALL
        SELECT host, container_id, pid, host_pid, py_stack, 0, off_ns, weight
        FROM ebpf_off_cpu_profile WHERE start_time >= now() - INTERVAL 1 HOUR AND NOT idle
    )
    WHERE below > 1
    GROUP BY host, container_id, pid, host_pid, coroutine, innermost
)
GROUP BY host, container_id, pid, host_pid, coroutine
ORDER BY cpu_ms + blocked_ms DESC, host, host_pid, coroutine
LIMIT 20;
