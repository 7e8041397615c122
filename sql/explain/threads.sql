-- Number of threads of a process with requests, from ten minutes before a time until a second time, for `underspan explain`.
-- on_loop: the given thread is an event loop. A single request on an idle loop does not show that (model 'thread'); further
-- requests of the thread do.
SELECT
    uniqExactIf(tid, start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')) AS threads,
    max(model = 'loop' AND tid = {tid:UInt32}) AS on_loop
FROM ebpf_request
WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 10 MINUTE
