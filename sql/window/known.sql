-- How many of the pids an agent reported within a day, by the last word of a tracker ('': of any), for `underspan offcpu` and `gil`:
-- without rows they waited for nothing, or were not there.
SELECT countIf(live OR {tracker:String} = '') AS known
FROM
(
    SELECT host, host_pid, argMax(ebpf_probe_health.live, time) AS live
    FROM ebpf_probe_health
    WHERE ({tracker:String} = '' OR tracker = {tracker:String})
        AND time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND time < {to:DateTime64(6, 'UTC')}
        AND ({host:String} = '' OR host = {host:String})
        AND has({pids:Array(UInt32)}, host_pid)
    GROUP BY host, host_pid
)
