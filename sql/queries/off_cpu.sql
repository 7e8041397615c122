-- Where did threads wait in the last hour, busy ones only: by service process, cause and place?
SELECT
    host, pid, cause, syscall,
    arrayStringConcat(arraySlice(if(empty(py_stack), user_stack, py_stack), 1, 4), ' < ') AS place,
    sum(count) AS times,
    round(sum(off_ns) / 1e6, 1) AS off_ms,
    round(sum(runq_ns) / 1e6, 1) AS of_it_without_cpu_ms,
    round(max(max_ns) / 1e6, 1) AS longest_ms,
    topK(1)(waker_comm) AS woken_by
FROM ebpf_off_cpu_profile
WHERE start_time >= now() - INTERVAL 1 HOUR AND NOT idle
GROUP BY host, pid, cause, syscall, place
ORDER BY off_ms DESC
LIMIT 30;
