-- Which code keeps event loops from serving further connections? Stalls of the last hour by process and by the Python code (leaf
-- first) running or sleeping during the stall: count, duration, main part ('child': the code waits in module subprocess), and the
-- maximum of descriptors ready at the next poll. NULL: no stack, no count.
SELECT
    host, left(container_id, 12) AS container, pid, host_pid, loop,
    nullIf(arrayStringConcat(arraySlice(py_stack, 1, 4), ' < '), '') AS stalled_in,
    if((arraySort(part -> (-part.2, part.1), [
        ('cpu', sum(cpu_ns * weight)), ('runq', sum(runq_ns * weight)), ('gil', ifNull(sum(gil_ns * weight), 0)),
        ('lock', ifNull(sum(lock_ns * weight), 0)), ('net', ifNull(sum(net_ns * weight), 0)), ('disk', ifNull(sum(disk_ns * weight), 0)),
        ('sleep', ifNull(sum(sleep_ns * weight), 0)), ('other', sum(other_ns * weight))])[1].1 AS most) = 'other'
            AND ifNull(match(stalled_in, '/subprocess\\.py:|/multiprocessing/popen_'), 0), 'child', most) AS mostly,
    round(sum(weight)) AS stalls,
    round(sum(duration_ns * weight) / 1e6, 1) AS stalled_ms,
    round(max(duration_ns) / 1e6, 1) AS max_ms,
    max(waiting) AS max_waiting
FROM ebpf_loop_stall
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY host, container_id, pid, host_pid, loop, stalled_in
ORDER BY stalled_ms DESC, host, host_pid, loop, stalled_in
LIMIT 20;
