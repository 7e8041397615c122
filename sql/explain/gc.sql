-- Collections that stopped a process between two times, for `underspan explain`.
SELECT
    tid,
    thread_name,
    generation,
    collected,
    long_lived,
    frozen_threads,
    -- of the trigger
    arrayMap(stack ->
#include "explain/place.inc"
        , [py_stack])[1] AS place,
#include "explain/event.inc"
FROM ebpf_gc_pause
WHERE pid = {pid:UInt32}
    AND host = {host:String} AND container_id = {container_id:String}
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
ORDER BY start_time
LIMIT 10000
