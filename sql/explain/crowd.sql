-- Which threads of the host's Python processes were on a CPU between two times, beside a request's thread, for `underspan explain`: of each
-- process the thread and code with most, by the samples of ebpf_on_cpu. ms: of these, process_ms: of the process, each sample the clock's
-- period, and its weight for those that the governor left out. own: of the request's process. Containers may have equal pids: host_pid
-- tells. Places: see place.inc.
SELECT own, by_pid, by_comm, by_thread, place, ms, process_ms
FROM
(
    SELECT
        pid = {pid:UInt32} AND container_id = {container_id:String} AND host_pid = {host_pid:UInt32} AS own, pid AS by_pid, container_id, host_pid, toString(max(comm)) AS by_comm,
        toString(thread_name) AS by_thread,
        arrayMap(stack ->
#include "explain/place.inc"
            , [py_stack])[1] AS place,
        sum(duration_ns * toFloat64(weight)) / 1e6 AS ms, sum(sum(duration_ns * toFloat64(weight))) OVER (PARTITION BY pid, container_id, host_pid) / 1e6 AS process_ms
    FROM ebpf_on_cpu
    WHERE host = {host:String} AND NOT (tid = {tid:UInt32} AND pid = {pid:UInt32} AND container_id = {container_id:String} AND host_pid = {host_pid:UInt32})
        -- the period of the clock is a second at most
        AND start_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 SECOND
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    GROUP BY pid, container_id, host_pid, thread_name, place
)
ORDER BY process_ms DESC, by_pid, host_pid, ms DESC, by_thread, place
LIMIT 1 BY by_pid, container_id, host_pid
LIMIT 10
