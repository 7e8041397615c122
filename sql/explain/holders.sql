-- Holders of the GIL during a thread's waits between two times, longest first, for `underspan explain`. The place is
-- of the holder, if known: see place.inc.
SELECT
    holder.tid AS tid, anyLast(holder.thread_name) AS thread_name, sum(holder.ns * weight) / 1e6 AS held_ms,
    argMax(where_it_was, (where_it_was != '', holder.ns)) AS place
FROM
(
    SELECT holders, weight, holder_tid,
        arrayMap(stack ->
#include "explain/place.inc"
            , [holder_py_stack])[1] AS its_place
    FROM ebpf_gil_wait
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
)
ARRAY JOIN holders AS holder, arrayMap(h -> if(h.tid = holder_tid, its_place, ''), holders) AS where_it_was
GROUP BY tid
ORDER BY held_ms DESC, tid
LIMIT 10
