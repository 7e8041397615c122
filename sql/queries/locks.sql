-- Which locks did threads wait for in the last hour, and which thread gave them back? A row per lock and thread that gave it back, of waits
-- of off_cpu.min_duration_us and longer. The address is the lock's within its process. waiting_in: the code of the longest wait, leaf
-- first. released_by_tid NULL: no thread ended the waits, as with a time-out. What a holder did meanwhile: `underspan explain`.
WITH if(empty(py_stack), user_stack, py_stack) AS stack
SELECT
    host, left(container_id, 12) AS container, pid, host_pid,
    concat('0x', trim(LEADING '0' FROM lower(hex(lock_address)))) AS lock,
    nullIf(waker_host_tid, 0) AS released_by_tid,
    argMax(if(waker_thread_name != '', toString(waker_thread_name), toString(waker_comm)), (start_time, host_tid)) AS released_by,
    round(sum(weight)) AS waits,
    uniqExact(host_tid) AS threads_seen,
    round(sum(duration_ns * weight) / 1e6, 1) AS waited_ms,
    round(max(duration_ns) / 1e6, 1) AS longest_ms,
    argMaxIfOrNull(arrayStringConcat(arraySlice(stack, 1, 4), ' < '), (duration_ns, start_time, host_tid), notEmpty(stack)) AS waiting_in
FROM ebpf_off_cpu
WHERE start_time >= now() - INTERVAL 1 HOUR AND lock_address != 0 AND NOT idle
GROUP BY host, container_id, pid, host_pid, lock_address, waker_host_tid
ORDER BY waited_ms DESC, host, host_pid, lock_address, waker_host_tid
LIMIT 20;
