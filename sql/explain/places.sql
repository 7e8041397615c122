-- Where a request's thread waited and computed between two times, by cause and Python code, for `underspan explain`. Waits also of less
-- than a millisecond, which waits.sql leaves out. `cpu`: samples of the thread on a CPU, by function, with the most frequent line.
-- Places: see place.inc.
SELECT cause, argMax(found, (its_us, found)) AS place, sum(its_us) AS us, sum(its_n) AS n
FROM
(
    SELECT
        cause,
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS found,
        sum(took_us) AS its_us, count() AS its_n
    FROM
    (
        SELECT toString(ebpf_off_cpu.cause) AS cause, py_stack, toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time) AS took_us
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND ebpf_off_cpu.cause != 'gil'
            AND host = {host:String} AND container_id = {container_id:String}
            AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        UNION ALL
        SELECT 'cpu' AS cause, py_stack, toInt64(intDiv(duration_ns, 1000)) AS took_us
        FROM ebpf_on_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
            -- the period of the clock is a second at most
            AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 SECOND
            AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    )
    GROUP BY cause, found
)
WHERE found != ''
GROUP BY cause, if(cause = 'cpu', replaceRegexpAll(found, ':[0-9]+\\)', ')'), found)
ORDER BY us DESC, cause, place
LIMIT 100
