-- Waits of a millisecond and longer of all threads of a process between two times, other than for work, for the holders of a lock in
-- `underspan explain`. by_tid: the thread that ended the wait.
SELECT
    tid,
    thread_name,
    toString(ebpf_off_cpu.cause) AS cause,
#include "offcpu/lock.inc"
    waker_tid AS by_tid,
#include "explain/waker.inc"
    arrayMap(stack ->
#include "explain/place.inc"
        , [py_stack])[1] AS place,
#include "explain/event.inc"
FROM ebpf_off_cpu
WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
    AND ebpf_off_cpu.cause != 'gil' AND idle = 0 AND duration_ns >= 1000000
    AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
ORDER BY end_time, tid
LIMIT 10000
