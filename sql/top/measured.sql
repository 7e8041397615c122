-- In which processes GIL waits were measured, by the last word of each process within a day, for `underspan top --since`.
SELECT host_pid, argMax(ebpf_probe_health.live, time) AS measured
FROM ebpf_probe_health
WHERE tracker = 'gil_wait' AND time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR host = {host:String}) AND host_pid != 0
GROUP BY host, host_pid
ORDER BY host_pid
