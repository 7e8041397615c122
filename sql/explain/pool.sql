-- Waits of the threads to which an event loop gave work, between two times, by cause, Python code and library function, for `underspan
-- explain`. These threads are known by their waits for work that the loop's thread ended. Short ones may have no stack to tell work from a
-- lock, or from the start of a thread: they count only of threads that waited at or after the first time, since one made for a request has
-- ended. Threads of an executor with a queue do not wait while there is work: they are known by its function, and by waking the loop.
-- Threads without Python that woke the loop between the two times are of its library's own pool (libuv's, which asks DNS). Sums have also
-- the short waits. A loop may have several pools (anyio's, asyncio's executor, libuv's), whose threads' names differ in more than digits:
-- those that neither got work nor waited between the two times are left out. Waits for work are left out. threads: of this line;
-- pool_threads: all; pool_ms, longest_ms: the waits of all, and the longest of them, also before and after the two times.
WITH sums AS
(
    SELECT tid, toString(thread_name) AS name, cause, waker_pid, waker_tid, thread_name != '' OR notEmpty(py_stack) AS of_python, idle = 1 AS surely_for_work, empty(py_stack) AS may_be_for_work,
        arrayExists(f -> startsWith(f, '_worker (') AND position(f, 'concurrent/futures/thread.py') > 0, py_stack) AS of_executor
    FROM ebpf_off_cpu_profile
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 1 MINUTE
),
given AS
(
    SELECT tid, replaceRegexpAll(max(name), '[0-9]+', '') AS pool
    FROM sums
    WHERE tid != {tid:UInt32}
        AND (cause = 'lock' AND waker_tid = {tid:UInt32} AND (surely_for_work OR may_be_for_work AND tid IN
            (
                SELECT ebpf_off_cpu.tid FROM ebpf_off_cpu
                WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                    AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 1 MINUTE
                    AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
                    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            ))
            OR of_executor AND tid IN (SELECT waker_tid FROM sums WHERE tid = {tid:UInt32} AND cause = 'poll' AND waker_pid = {pid:UInt32})
            OR tid NOT IN (SELECT tid FROM sums WHERE of_python) AND tid IN
            (
                SELECT waker_tid FROM ebpf_off_cpu
                WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                    AND ebpf_off_cpu.cause = 'poll' AND waker_pid = {pid:UInt32}
                    AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                    AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
                    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            ))
    GROUP BY tid
),
waits AS
(
    SELECT
        ebpf_off_cpu.cause AS why, tid, ebpf_off_cpu.cause = 'lock' AND waker_tid = {tid:UInt32} AS for_work, toString(ebpf_off_cpu.thread_name) AS thread_name,
#include "explain/library.inc"
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
        toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time) AS whole_us,
        least(toUnixTimestamp64Micro(end_time), {to_us:Int64}) - greatest(toUnixTimestamp64Micro(start_time), {from_us:Int64}) AS us
    FROM ebpf_off_cpu
    WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
        AND tid IN (SELECT tid FROM given)
        AND (for_work = 0 AND idle = 0 OR for_work AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC'))
        AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
),
worked AS
(
    SELECT tid FROM given WHERE pool IN (SELECT pool FROM given WHERE tid IN (SELECT tid FROM waits))
)
SELECT
    toString(why) AS cause, place, library,
    uniqExact(tid) AS threads, max(thread_name) AS thread_name, sum(us) / 1000 AS waited_ms,
    (SELECT count() FROM worked) AS pool_threads, sum(waited_ms) OVER () AS pool_ms, max(max(whole_us)) OVER () / 1000 AS longest_ms
FROM waits
WHERE for_work = 0 AND tid IN (SELECT tid FROM worked)
GROUP BY why, place, library
ORDER BY waited_ms DESC, cause, place, library
LIMIT 20
