-- Waits for the GIL between two times of the threads that accept a process's connections, with the holder at the begin and the
-- holder's Python code, for `underspan explain`. Only the first thread and threads that accepted a connection in that time,
-- without threads that serve requests; and the given thread after its request before. Places: see place.inc.
SELECT
    tid,
    thread_name,
    holder_tid AS by_tid,
    holder_thread_name AS by_name,
    arrayMap(stack ->
#include "explain/place.inc"
        , [holder_py_stack])[1] AS place,
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
