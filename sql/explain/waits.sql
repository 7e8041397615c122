-- Waits of a span's thread of a millisecond and longer, for `underspan explain`: for the GIL, with the longest holder and, where it is
-- the one at the wait's begin, whose code was read, its Python code, and further waits off the CPU, with the waiting code. Places: see place.inc. lock: the
-- address, if known; syscall: of that wait. library: see library.inc.
SELECT * FROM
(
    SELECT
        'gil' AS cause, '' AS lock, '' AS syscall,
        if(empty(holders), holder_tid, arrayReverseSort(h -> h.2, holders)[1].1) AS by_tid,
        if(empty(holders), toString(holder_thread_name), arrayReverseSort(h -> h.2, holders)[1].3) AS by_name,
        if(by_tid = holder_tid, arrayMap(stack ->
#include "explain/place.inc"
            , [holder_py_stack])[1], '') AS place,
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
