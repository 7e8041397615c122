-- Where a request's thread waited most by cause, in the sums of off_cpu that overlap the request, for `underspan explain`: waits that are
-- too short, and those that the governor left out, have no row. percent: of the thread's waits with that cause, also those without a known
-- place; seconds: covered by the sums; ms: there, all_ms: anywhere; alike_ms: of these, by the ledger, those of requests with the same method
-- and path, from begin to end within the sums. Places: see place.inc.
WITH
    sums AS
    (
        SELECT
            multiIf(p.state IN ('T', 't'), 'stopped', p.state = 'F', 'frozen', toString(p.cause)) AS cause,
            arrayMap(stack ->
#include "explain/place.inc"
                , [p.py_stack])[1] AS place,
            p.off_ns * toFloat64(p.weight) AS off, p.start_time AS since, p.end_time AS until
        FROM ebpf_off_cpu_profile AS p
        WHERE p.pid = {pid:UInt32} AND p.tid = {tid:UInt32} AND p.host = {host:String} AND p.container_id = {container_id:String} AND NOT p.idle
            AND p.start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 5 MINUTE
            AND p.start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND p.end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    ),
    (SELECT min(since) FROM sums) AS first,
    (SELECT max(until) FROM sums) AS last,
    (
        SELECT arrayZip(['lock', 'net', 'disk', 'page_fault', 'sleep', 'pipe', 'child', 'other', 'poll', 'stopped', 'frozen'],
            arrayResize(sumForEach(arrayMap(ns -> ns * toFloat64(r.weight),
                [r.lock_ns, r.net_ns, r.disk_ns, r.fault_ns, r.sleep_ns, r.pipe_ns, r.child_ns, r.other_ns, r.other_ns, r.other_ns, r.other_ns])), 11))
        FROM ebpf_request AS r
        WHERE r.pid = {pid:UInt32} AND r.tid = {tid:UInt32} AND r.host = {host:String} AND r.container_id = {container_id:String}
            AND r.start_time >= first AND r.end_time <= last AND r.path != ''
            AND (toString(r.method), r.path) IN
            (
                SELECT toString(q.method), q.path FROM ebpf_request AS q
                WHERE q.request_id = {request_id:UInt64} AND q.pid = {pid:UInt32} AND q.tid = {tid:UInt32} AND q.host = {host:String}
                    AND q.start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                    AND q.start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            )
    ) AS alike
SELECT cause, place, percent, seconds, ms, all_ms, alike_ms
FROM
(
    SELECT
        cause, place, round(100 * sum(off) / sum(sum(off)) OVER (PARTITION BY cause), 1) AS percent,
        round((toUnixTimestamp64Micro(last) - toUnixTimestamp64Micro(first)) / 1e6, 1) AS seconds,
        sum(off) / 1e6 AS ms, sum(sum(off)) OVER (PARTITION BY cause) / 1e6 AS all_ms,
        arrayFirst(p -> p.1 = cause, alike).2 / 1e6 AS alike_ms
    FROM sums
    GROUP BY cause, place
)
WHERE place != ''
ORDER BY percent DESC, cause, place
LIMIT 1 BY cause
