-- Times in which a CPU quota stopped a process, between two times, for `underspan explain`.
SELECT
    cgroup,
    quota_us,
    period_us,
    intDiv(throttled_ns, 1000) AS throttled_us,
    throttled_periods,
    toUnixTimestamp64Micro(start_time) AS begin_us,
    toUnixTimestamp64Micro(end_time) AS end_us
FROM ebpf_cpu_throttle
WHERE pid = {pid:UInt32}
    AND host = {host:String} AND container_id = {container_id:String}
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
ORDER BY start_time
LIMIT 1000
