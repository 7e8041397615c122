-- Further requests of a process between two times, similar requests in a line, for `underspan explain`. held_ms: sum of thread
-- time in that period; pool_ms: of these, of threads other than the one that read the request.
SELECT
    method, path, round(sum(weight)) AS requests, uniqExact(tid) AS threads, sum(us) / 1000 AS held_ms,
    sumIf(us, link IN ('write', 'wake')) / 1000 AS pool_ms,
    max(duration_ns) / 1e6 AS longest_ms, toString(argMax(request_id, duration_ns)) AS longest_request_id
FROM
(
    SELECT method, path, weight, tid, link, duration_ns, request_id, toUnixTimestamp64Micro(end_time) AS ended_us,
#include "views/handled_us.inc"
        AS taken_us,
        weight * (least(ended_us, {to_us:Int64}) - greatest(taken_us, {from_us:Int64})) AS us
    FROM ebpf_request
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
        AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND toString(request_id) != {request_id:String}
)
WHERE taken_us < {to_us:Int64} AND ended_us > {from_us:Int64}
GROUP BY method, path
ORDER BY held_ms DESC, method, path
LIMIT 20
