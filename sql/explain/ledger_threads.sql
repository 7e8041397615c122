-- Requests without a trace id on the threads of server spans between two times, for `underspan explain`.
SELECT toString(request_id) AS request_id, trace_id, pid, toUnixTimestamp64Micro(start_time) AS from_us
FROM ebpf_request
WHERE pid IN {pids:Array(UInt32)} AND tid IN {tids:Array(UInt32)} AND trace_id = ''
    AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
ORDER BY from_us
LIMIT 1000
