-- Stalls of an event loop between two times, with the Python code, for `underspan explain`. cause: largest part of the stall; a stall that was
-- mostly none of the parts, by its code in module subprocess, or by the thread's waits in that time, of which the longest together are most of it.
-- place: where the thread waited for half of the stall or longer, for that cause (of "other" for any: the parts may not be measured);
-- otherwise the code at the moment when the stall was noticed, which in a turn with several callbacks may be another's. A stall may go on
-- after the request's end. Waits for the cause and for the place have a limit each: of polls there are many.
WITH
(
    SELECT groupArray((toUnixTimestamp64Micro(start_time), toUnixTimestamp64Micro(end_time), cause))
    FROM
    (
        SELECT
#include "explain/off_cpu_cause.inc"
            start_time, end_time
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
            AND host = {host:String} AND container_id = {container_id:String}
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            AND duration_ns >= 1000000
            AND (ebpf_off_cpu.cause IN ('child', 'pipe', 'poll', 'page_fault') OR state IN ('T', 't', 'F'))
        ORDER BY start_time DESC
        LIMIT 10000
    )
) AS off,
(
    SELECT groupArray((toUnixTimestamp64Micro(start_time), toUnixTimestamp64Micro(end_time), cause, place))
    FROM
    (
        SELECT
#include "explain/off_cpu_cause.inc"
            arrayMap(stack ->
#include "explain/place.inc"
                , [py_stack])[1] AS place,
            start_time, end_time
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
            AND host = {host:String} AND container_id = {container_id:String}
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 1 MINUTE
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            AND duration_ns >= 1000000
            AND ebpf_off_cpu.cause IN ('lock', 'net', 'disk', 'sleep', 'child', 'pipe') AND notEmpty(py_stack)
        ORDER BY start_time DESC
        LIMIT 10000
    )
) AS placed
SELECT loop, cause, place, begin_us, end_us
FROM
(
    SELECT
        loop,
        multiIf(part != 'other', part,
            in_subprocess, 'child',
            most.1 * 2000 > other_ns, most.2,
            'other') AS cause,
        arrayFilter(w -> w.1 < end_us AND w.2 > begin_us AND (w.3 = cause OR cause = 'other') AND w.4 != '', placed) AS same,
        arrayReverseSort(arrayMap(name -> (arraySum(w -> if(w.4 = name, least(w.2, end_us) - greatest(w.1, begin_us), 0), same), name),
            arrayDistinct(arrayMap(w -> w.4, same))))[1] AS longest,
        if(longest.1 * 2 >= end_us - begin_us, longest.2, noticed) AS place,
        begin_us, end_us
    FROM
    (
        SELECT
            toString(loop) AS loop, other_ns,
            -- parts that are NULL were not measured
            arrayReduce('argMax', ['cpu', 'runq', 'gil', 'lock', 'net', 'disk', 'sleep', 'other'],
                [cpu_ns, runq_ns, ifNull(gil_ns, 0), ifNull(lock_ns, 0), ifNull(net_ns, 0), ifNull(disk_ns, 0), ifNull(sleep_ns, 0), other_ns]) AS part,
            arrayExists(f -> match(f, '/subprocess\\.py:|/multiprocessing/popen_'), arraySlice(py_stack, 1, 4)) AS in_subprocess,
            arrayFilter(w -> w.1 < end_us AND w.2 > begin_us, off) AS within,
            arrayMap(name -> (arraySum(w -> if(w.3 = name, least(w.2, end_us) - greatest(w.1, begin_us), 0), within), name),
                ['child', 'pipe', 'poll', 'page_fault', 'stopped', 'frozen']) AS sums,
            arrayReverseSort(sums)[1] AS most,
            arrayMap(stack ->
#include "explain/place.inc"
                , [py_stack])[1] AS noticed,
#include "explain/event.inc"
        FROM ebpf_loop_stall
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
            AND host = {host:String} AND container_id = {container_id:String}
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    )
)
ORDER BY begin_us
LIMIT 1000
