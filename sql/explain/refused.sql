-- Trackers of the interpreter that a process has refused up to a time, with the reasons, for `underspan explain`. Rows are repeated
-- each 12 hours (health_interval).
SELECT toString(tracker) AS tracker, argMax(toString(reason), time) AS reason
FROM ebpf_probe_health
WHERE host = {host:String} AND container_id = {container_id:String} AND host_pid = {host_pid:UInt32}
    AND tracker IN ('gil_wait', 'gc_pause')
    AND time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 25 HOUR
    AND time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 1 MINUTE
GROUP BY tracker
HAVING argMax(ebpf_probe_health.live, time) = 0 AND reason != ''
ORDER BY tracker
