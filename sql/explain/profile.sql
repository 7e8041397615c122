-- Where a request's thread waited most by cause, in the sums of off_cpu that overlap the request, for `underspan explain`: waits that are
-- too short, and those that the governor left out, have no row. percent: of the thread's waits with that cause, also those without a known
-- place; seconds: covered by the sums. Places: see place.inc.
SELECT cause, place, percent, seconds
FROM
(
    SELECT
        cause, place, round(100 * sum(off) / sum(sum(off)) OVER (PARTITION BY cause), 1) AS percent,
        round((max(max(until)) OVER () - min(min(since)) OVER ()) / 1e6, 1) AS seconds
    FROM
    (
        SELECT
            multiIf(p.state IN ('T', 't'), 'stopped', p.state = 'F', 'frozen', toString(p.cause)) AS cause,
            arrayMap(stack ->
#include "explain/place.inc"
                , [p.py_stack])[1] AS place,
            p.off_ns * toFloat64(p.weight) AS off, toUnixTimestamp64Micro(p.start_time) AS since, toUnixTimestamp64Micro(p.end_time) AS until
        FROM ebpf_off_cpu_profile AS p
        WHERE p.pid = {pid:UInt32} AND p.tid = {tid:UInt32} AND p.host = {host:String} AND p.container_id = {container_id:String} AND NOT p.idle
            AND p.start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 5 MINUTE
            AND p.start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND p.end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    )
    GROUP BY cause, place
)
WHERE place != ''
ORDER BY percent DESC, cause, place
LIMIT 1 BY cause
