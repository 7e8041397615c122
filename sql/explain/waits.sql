-- Waits of a span's thread of a millisecond and longer, for `underspan explain`: for the GIL, with holder and the holder's
-- Python code, and further waits off the CPU, with the waiting code. Places: see place.inc. lock: the
-- address, if known; syscall: of that wait. library: see library.inc.
SELECT * FROM
(
    SELECT
        'gil' AS cause, '' AS lock, '' AS syscall,
        holder_tid AS by_tid,
        holder_thread_name AS by_name,
        arrayMap(stack ->
#include "explain/place.inc"
            , [holder_py_stack])[1] AS place,
        '' AS library,
#include "explain/event.inc"
    FROM ebpf_gil_wait
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
        AND host = {host:String} AND container_id = {container_id:String}
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND duration_ns >= 1000000
    UNION ALL
    SELECT
#include "explain/off_cpu_cause.inc"
#include "offcpu/lock.inc"
        toString(ebpf_off_cpu.syscall) AS syscall,
        waker_tid AS by_tid,
#include "explain/waker.inc"
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
#include "explain/library.inc"
#include "explain/event.inc"
    FROM ebpf_off_cpu
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND ebpf_off_cpu.cause != 'gil'
        AND host = {host:String} AND container_id = {container_id:String}
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND duration_ns >= 1000000
)
ORDER BY begin_us, end_us
LIMIT 10000
