-- Where a request's thread computed between two times, by Python function with its most frequent line, for `underspan explain`: samples of
-- ebpf_on_cpu, and n, their number. Places: see place.inc.
SELECT argMax(found, (its_n, found)) AS place, sum(its_n) AS n
FROM
(
    SELECT
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS found,
        count() AS its_n
    FROM ebpf_on_cpu
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        -- the period of the clock is a second at most
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 SECOND
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    GROUP BY found
)
WHERE found != ''
GROUP BY replaceRegexpAll(found, ':[0-9]+\\)', ')')
ORDER BY n DESC, place
LIMIT 100
