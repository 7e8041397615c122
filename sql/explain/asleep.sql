-- Sleeps between two times of the thread that accepts a process's connections, for `underspan explain`: what else than requests kept it. Not
-- its waits for connections (idle), nor those for the GIL (kept.sql). None where several threads accepted late in the ten minutes before, as
-- another one may have been free to accept. Places: see place.inc.
SELECT tid, thread_name, cause, place, begin_us, end_us
FROM
(
    SELECT
        tid,
        thread_name,
#include "explain/off_cpu_cause.inc"
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
#include "explain/event.inc"
    FROM ebpf_off_cpu
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND tid IN
        (
            SELECT any(tid) FROM ebpf_tcp_accept
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String} AND kind = 'accepted'
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
                AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            HAVING uniqExact(tid) = 1
        )
        AND NOT idle AND ebpf_off_cpu.cause != 'gil'
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    ORDER BY start_time, tid
    LIMIT 1000
)
ORDER BY begin_us, tid
