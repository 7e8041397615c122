-- Where did busy threads wait in the last hour, by process, cause and place? The place is Python code if known, otherwise native
-- code, leaf first. woken_by ended most of that time; NULL: a timer or a device. Intervals without room in the kernel's map have
-- only a cause.
SELECT
    host, left(container_id, 12) AS container, pid, host_pid, cause, syscall,
    if(host_pid = 0, '(no room for the place)', arrayStringConcat(frames, ' < ')) AS place,
    round(sum(times_by)) AS times,
    round(sum(off_by) / 1e6, 1) AS off_ms,
    round(sum(runq_by) / 1e6, 1) AS of_it_without_cpu_ms,
    round(max(max_by) / 1e6, 1) AS longest_ms,
    argMinIfOrNull(waker_comm, (-off_by, waker_comm), waker_comm != '') AS woken_by
FROM
(
    SELECT
        host, container_id, pid, host_pid, cause, syscall, toString(ebpf_off_cpu_profile.waker_comm) AS waker_comm,
        if(empty(py_stack), arraySlice(user_stack, 1, 4), arraySlice(py_stack, 1, 4)) AS frames,
        sum(count * weight) AS times_by, sum(off_ns * weight) AS off_by, sum(runq_ns * weight) AS runq_by, max(max_ns) AS max_by
    FROM ebpf_off_cpu_profile
    WHERE start_time >= now() - INTERVAL 1 HOUR AND NOT idle
    GROUP BY host, container_id, pid, host_pid, cause, syscall, waker_comm, frames
)
GROUP BY host, container_id, pid, host_pid, cause, syscall, frames
ORDER BY off_ms DESC, host, host_pid, cause, syscall, place
LIMIT 30;
