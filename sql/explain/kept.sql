-- Waits for the GIL between two times of the threads that accept a process's connections, for `underspan explain`, each with the longest
-- holder and, where it is the one at the wait's begin, whose code was read, its Python code. Only the first thread and threads that accepted
-- a connection in that time, without threads that serve requests; and the given thread after its request before. Places: see place.inc.
SELECT tid, thread_name, by_tid, by_name, place, begin_us, end_us
FROM
(
    SELECT
        tid,
        thread_name,
        arrayReverseSort(h -> h.2, holders)[1] AS longest,
        if(empty(holders), holder_tid, longest.1) AS by_tid,
        if(empty(holders), toString(holder_thread_name), longest.3) AS by_name,
        if(by_tid = holder_tid, arrayMap(stack ->
#include "explain/place.inc"
            , [holder_py_stack])[1], '') AS place,
#include "explain/event.inc"
    FROM ebpf_gil_wait
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND ((tid = {pid:UInt32} OR tid IN
        (
            SELECT tid FROM ebpf_tcp_accept
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String} AND kind = 'accepted'
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
                AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        ))
        AND tid NOT IN
        (
            SELECT tid FROM ebpf_request
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
                AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        )
            OR tid = {tid:UInt32} AND start_time >=
        (
            SELECT max(end_time) FROM ebpf_request
            WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
                AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                AND toString(request_id) != {request_id:String}
        ))
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    ORDER BY start_time, tid
    LIMIT 1000
)
ORDER BY begin_us, tid
