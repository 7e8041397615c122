-- Which threads kept others waiting for the GIL in the last hour, for how long, and running which Python code (leaf
-- first)? Waits over the threshold; ebpf_gil_wait_profile has the sums of all.
SELECT
    host, pid, holder.tid AS keeper_tid,
    any(holder.thread_name) AS keeper_name,
    count() AS waits,
    uniq(tid) AS victims,
    round(sum(holder.ns) / 1e6, 1) AS kept_waiting_ms,
    round(max(duration_ms), 1) AS longest_wait_ms,
    topKIf(1)(arrayStringConcat(arraySlice(holder_py_stack, 1, 4), ' < '), holder.tid = holder_tid AND notEmpty(holder_py_stack)) AS running
FROM ebpf_gil_wait
ARRAY JOIN holders AS holder
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY host, pid, keeper_tid
ORDER BY kept_waiting_ms DESC
LIMIT 20;
