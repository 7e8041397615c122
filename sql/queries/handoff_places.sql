-- Which code picks connections up late? The last hour's requests that waited for a thread, by process and by where in its
-- Python code (leaf first) a worker took them at last.
SELECT
    host, pid, local_port,
    arrayStringConcat(arraySlice(py_stack, 1, 4), ' < ') AS picked_up_in,
    round(sum(weight)) AS requests,
    round(sum(handoff_ms * weight), 1) AS waited_ms,
    round(quantile(0.99)(handoff_ms), 1) AS p99_ms,
    round(max(handoff_ms), 1) AS max_ms
FROM ebpf_handoff
WHERE start_time >= now() - INTERVAL 1 HOUR AND notEmpty(py_stack)
GROUP BY host, pid, local_port, picked_up_in
ORDER BY waited_ms DESC
LIMIT 20;
