-- Waits off the CPU of a request's thread between two times, by cause and Python code, for `underspan explain`: also the short ones, which
-- waits.sql leaves out. Places: see place.inc.
SELECT cause, place, sum(us) AS us
FROM
(
    SELECT
#include "explain/off_cpu_cause.inc"
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
        toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time) AS us
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
