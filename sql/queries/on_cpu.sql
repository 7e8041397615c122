-- Which Python code computes? Samples of the last hour by process and by the innermost Python code (leaf first): CPU time as
-- samples say, share of the process's, threads. NULL: a native thread, or not readable.
SELECT
    host, left(container_id, 12) AS container, pid, host_pid,
    nullIf(arrayStringConcat(arraySlice(py_stack, 1, 4), ' < '), '') AS computed_in,
    round(sum(duration_ns * weight) / 1e6) AS cpu_ms,
    round(100 * cpu_ms / sum(cpu_ms) OVER (PARTITION BY host, container_id, pid, host_pid), 1) AS percent,
    uniqExact(tid) AS threads
FROM ebpf_on_cpu
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY host, container_id, pid, host_pid, computed_in
ORDER BY cpu_ms DESC, host, host_pid, computed_in
LIMIT 20;
