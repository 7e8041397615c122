-- Trackers whose rows name code, of which one event in `one_in` had a row between two times, however long it was, for `underspan explain`:
-- the governor held its limit.
SELECT toString(tracker) AS tracker, toUInt32(exp2(max(skip_shift))) AS one_in
FROM ebpf_agent
WHERE host = {host:String} AND tracker IN ('gc_pause', 'gil_wait', 'loop_stall', 'off_cpu')
    AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
GROUP BY tracker
HAVING one_in > 1
ORDER BY tracker
