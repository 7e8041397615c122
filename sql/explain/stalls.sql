-- Stalls of an event loop between two times, with the Python code, for `underspan explain`. cause: largest part of the stall.
SELECT
    toString(loop) AS loop,
    -- parts that are NULL were not measured
    arrayReduce('argMax', ['cpu', 'runq', 'gil', 'lock', 'net', 'disk', 'sleep', 'other'],
        [cpu_ns, runq_ns, ifNull(gil_ns, 0), ifNull(lock_ns, 0), ifNull(net_ns, 0), ifNull(disk_ns, 0), ifNull(sleep_ns, 0), other_ns]) AS cause,
    arrayMap(stack ->
#include "explain/place.inc"
        , [py_stack])[1] AS place,
#include "explain/event.inc"
FROM ebpf_loop_stall
WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
    AND host = {host:String} AND container_id = {container_id:String}
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
ORDER BY start_time
LIMIT 1000
