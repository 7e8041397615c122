-- Which collections of the last hour stopped a process longest, what Python code set them off (leaf first), and how
-- many threads stood still meanwhile?
SELECT
    start_time, host, pid, thread_name,
    generation, round(duration_ms, 1) AS ms, collected, frozen_threads,
    arrayStringConcat(arraySlice(py_stack, 1, 4), ' < ') AS set_off_by
FROM ebpf_gc_pause
WHERE start_time >= now() - INTERVAL 1 HOUR
ORDER BY duration_ns DESC
LIMIT 20;
