-- Waits off the CPU of a request's thread between two times, by cause and Python code, for `underspan explain`: also the short ones, which
-- waits.sql leaves out. Places: see place.inc. Of a wait that goes on, the time until the end: a pool's thread waits for its next work
-- before the event loop has written the answer.
SELECT cause, place, sum(us) AS us
FROM
(
    SELECT
#include "explain/off_cpu_cause.inc"
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
        least(toUnixTimestamp64Micro(end_time), {to_us:Int64}) - toUnixTimestamp64Micro(start_time) AS us
    FROM ebpf_off_cpu
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND ebpf_off_cpu.cause != 'gil'
        AND host = {host:String} AND container_id = {container_id:String}
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
)
WHERE place != ''
GROUP BY cause, place
ORDER BY us DESC, cause, place
LIMIT 100
