-- Until when the sums of a process's waits (ebpf_off_cpu_profile) are stored, for `underspan explain`: a row where that is before the
-- request's end and less than two intervals ago, so the next sums are to come. wait_s: how long until then, with two seconds for the way.
SELECT until_us, toInt64(ceil((until_us + every_us - now_us) / 1e6)) + 2 AS wait_s
FROM
(
    SELECT
        toUnixTimestamp64Micro(max(end_time)) AS until_us, toUnixTimestamp64Micro(toDateTime64(now(), 6, 'UTC')) AS now_us,
        argMax(toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time), end_time) AS every_us
    FROM ebpf_off_cpu_profile
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 5 MINUTE
)
WHERE until_us < {to_us:Int64} AND now_us < until_us + 2 * every_us AND until_us > 0
