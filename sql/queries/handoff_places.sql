-- Which code picks connections up late? Requests of the last hour that waited for a thread, by process and by the worker's
-- Python code at the pick-up (leaf first). Only requests with a stack (handoff.stack_min_us).
WITH toUInt64(round(weight * 1000)) AS thousandths -- quantiles need integer weights
SELECT
    host, left(container_id, 12) AS container, pid, host_pid, local_port,
    arrayStringConcat(arraySlice(py_stack, 1, 4), ' < ') AS picked_up_in,
    round(sum(weight)) AS requests,
    round(sum(handoff_ns * weight) / 1e6, 1) AS waited_ms,
    round(quantileExactWeighted(0.99)(intDiv(handoff_ns, 1000), thousandths) / 1e3, 1) AS p99_ms,
    round(max(handoff_ns) / 1e6, 1) AS max_ms
FROM ebpf_handoff
WHERE start_time >= now() - INTERVAL 1 HOUR AND notEmpty(py_stack)
GROUP BY host, container_id, pid, host_pid, local_port, picked_up_in
ORDER BY waited_ms DESC, host, host_pid, local_port, picked_up_in
LIMIT 20;
