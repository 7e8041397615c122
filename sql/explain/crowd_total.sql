-- How long all watched Python threads of the host but a request's computed between two times, by the samples of ebpf_on_cpu, for
-- `underspan explain`; covered: the share of that time in which the tracker on_cpu ran without a loss.
SELECT
    (
        SELECT sum(duration_ns * toFloat64(weight)) / 1e6
        FROM ebpf_on_cpu
        WHERE host = {host:String}
            AND NOT (tid = {tid:UInt32} AND pid = {pid:UInt32} AND container_id = {container_id:String} AND host_pid = {host_pid:UInt32})
            AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 SECOND
            AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    ) AS computed_ms,
    sum(least(toUnixTimestamp64Micro(end_time), {to_us:Int64}) - greatest(toUnixTimestamp64Micro(start_time), {from_us:Int64}))
        / ({to_us:Int64} - {from_us:Int64}) AS covered
FROM ebpf_agent
WHERE host = {host:String} AND tracker = 'on_cpu'
    AND lost_ring + lost_state + bad_event + dropped_memory + dropped_spool + dropped_corrupt + dropped_refused = 0
    AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
