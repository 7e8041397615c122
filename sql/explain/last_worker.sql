-- Which thread of its process woke an event loop's thread, from at most 5 ms before an answer's end, and woke it last, and what it had
-- waited for in that piece of work, by cause, Python code and library function, for `underspan explain`: the thread that worked for the
-- request, where the ledger does not name it and the loop had no other answer at that time. The piece begins with its last wait for work
-- (ended by the loop, or idle), or with its wake of the loop before. Places: see place.inc.
WITH
    fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AS begin,
    fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') AS end,
    wakes AS
    (
        SELECT waker_pid, waker_tid, end_time AS woken
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
            AND ebpf_off_cpu.cause = 'poll' AND end_time <= end AND end_time >= begin
            AND start_time <= end AND start_time > begin - INTERVAL 1 MINUTE
    ),
    last_wake AS
    (
        SELECT waker_tid AS worker, woken AS done
        FROM (SELECT * FROM wakes ORDER BY woken DESC LIMIT 1)
        WHERE waker_pid = {pid:UInt32} AND waker_tid != {tid:UInt32} AND woken >= end - INTERVAL 5 MILLISECOND
            -- the wake may have been for another answer of that time
            AND 0 =
            (
                SELECT count() FROM ebpf_request
                WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                    AND ebpf_request.request_id != {request_id:UInt64}
                    AND end_time >= end - INTERVAL 5 MILLISECOND AND end_time <= end + INTERVAL 5 MILLISECOND
                    AND start_time <= end AND start_time > begin - INTERVAL 10 MINUTE
            )
    ),
    waits AS
    (
        SELECT
            tid, toString(ebpf_off_cpu.thread_name) AS thread_name, toString(ebpf_off_cpu.cause) AS why, start_time, end_time, idle, waker_tid,
#include "explain/library.inc"
            arrayMap(stack ->
#include "explain/place.inc"
                , [py_stack])[1] AS place
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = (SELECT max(worker) FROM last_wake) AND host = {host:String} AND container_id = {container_id:String}
            AND end_time >= begin AND end_time <= (SELECT max(done) FROM last_wake)
            AND start_time <= end AND start_time > begin - INTERVAL 10 MINUTE
    ),
    (SELECT max(end_time) FROM waits WHERE idle OR why = 'lock' AND waker_tid = {tid:UInt32}) AS given,
    (SELECT max(woken) FROM wakes WHERE waker_tid = (SELECT max(worker) FROM last_wake) AND woken < (SELECT max(done) FROM last_wake)) AS before
SELECT
    tid, max(waits.thread_name) AS thread_name, why AS cause, place, library,
    sum(toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time)) / 1000 AS ms
FROM waits
WHERE start_time >= begin AND start_time >= ifNull(given, begin) AND start_time >= ifNull(before, begin)
GROUP BY tid, why, place, library
ORDER BY ms DESC, cause, place
LIMIT 20
