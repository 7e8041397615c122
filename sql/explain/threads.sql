-- How many threads of a process had requests in the ten minutes before a moment and until another, for `underspan explain`. on_loop:
-- the given thread is an event loop. A single request that finds it idle does not show that (model 'thread'); others of it do.
SELECT
    uniqExactIf(tid, start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')) AS threads,
    max(model = 'loop' AND tid = {tid:UInt32}) AS on_loop
FROM ebpf_request
WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 10 MINUTE
