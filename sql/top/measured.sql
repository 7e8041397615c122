-- In which processes GIL waits were measured and threads on a CPU sampled, by the last word of each process within a day, for `underspan top
-- --since`.
SELECT
    host_pid, argMaxIf(ebpf_probe_health.live, time, tracker = 'gil_wait') AS gil, argMaxIf(ebpf_probe_health.live, time, tracker = 'on_cpu') AS cpu
FROM ebpf_probe_health
WHERE tracker IN ('gil_wait', 'on_cpu') AND time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR host = {host:String}) AND host_pid != 0
GROUP BY host, host_pid
ORDER BY host_pid
