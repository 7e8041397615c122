-- Which collections stopped a process longest in the last hour, which Python code triggered the collection (leaf first), how many
-- objects did a full one leave for the next to walk, how many threads waited, and how long did the collection stop all threads
-- together (thread_ms)? NULL: unreadable, of a younger generation, or the collection was too short for a stack or a count
-- (gc_pause.stack_min_us). Collections at the end of an interpreter, for which no request waits, are last (at_exit). Up to Python 3.12,
-- which does not tell: full collections without Python code for which no thread waited.
SELECT
    start_time, host, left(container_id, 12) AS container, pid, thread_name,
    nullIf(generation, -1) AS generation, round(duration_ns / 1e6, 1) AS ms, collected, long_lived, frozen_threads,
    round(duration_ns * (1 + frozen_threads) / 1e6, 1) AS thread_ms,
    nullIf(arrayStringConcat(arraySlice(py_stack, 1, 4), ' < '), '') AS set_off_by,
    reason = 'shutdown' OR (reason = '' AND generation = 2 AND empty(py_stack) AND ifNull(frozen_threads, 1) = 0) AS at_exit
FROM ebpf_gc_pause
WHERE start_time >= now() - INTERVAL 1 HOUR
ORDER BY at_exit, duration_ns DESC, start_time, host, host_pid
LIMIT 20;
