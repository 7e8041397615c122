-- How many threads of a process had requests in the ten minutes before a moment and until another, for `underspan explain`.
SELECT uniqExact(tid) AS threads
FROM ebpf_request
WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
