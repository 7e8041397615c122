-- Which threads kept waiters from the GIL in the last hour, for how long, and in which Python code (leaf first) for most of that
-- time, as far as stacks were taken? Only waits over the threshold; sums of all waits: ebpf_gil_wait_profile. keeper_tid NULL:
-- unknown holder.
SELECT
    host, left(container_id, 12) AS container, pid, host_pid,
    nullIf(keeper, 0) AS keeper_tid,
    max(last).3 AS keeper_name,
    round(sum(waits_by)) AS waits,
    uniqExactMerge(victims_by) AS victims_seen,
    round(sum(kept_by) / 1e6, 1) AS kept_waiting_ms,
    round(max(max_by) / 1e6, 1) AS longest_ms,
    argMinIfOrNull(arrayStringConcat(frames, ' < '), (-kept_by, frames), notEmpty(frames)) AS running
FROM
(
    SELECT
        host, container_id, pid, host_pid, holder.tid AS keeper,
        -- the stack belongs to the first holder
        if(holder.tid = holder_tid, arraySlice(holder_py_stack, 1, 4), []) AS frames,
        max((start_time, host_tid, holder.thread_name)) AS last,
        sum(weight) AS waits_by, uniqExactState(host_tid) AS victims_by,
        sum(holder.ns * weight) AS kept_by, max(holder.ns) AS max_by
    FROM ebpf_gil_wait
    ARRAY JOIN holders AS holder
    WHERE start_time >= now() - INTERVAL 1 HOUR
    GROUP BY host, container_id, pid, host_pid, keeper, frames
)
GROUP BY host, container_id, pid, host_pid, keeper
ORDER BY kept_waiting_ms DESC, host, host_pid, keeper_tid
LIMIT 20;
