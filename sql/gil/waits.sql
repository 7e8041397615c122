-- Waits for the GIL by thread, from the sums of all waits, for `underspan gil --since`. Threads of a name are summed: of all processes of a
-- service, or ({apart:UInt8}) of each process. tid: one of them, threads: how many.
-- A row may precede the first reading of its thread's name: it has the name of later rows.
SELECT
    service, process, process_pid, if(own_name != '', own_name, if(later_name != '', later_name, comm)) AS thread_name,
    uniqExact(of_host, of_pid, of_tid) AS threads,
    any(own_pid) AS pid, any(of_tid) AS tid, any(of_pid) AS host_pid, any(own_host_tid) AS host_tid,
    sum(n) AS waits, sum(ns) AS wait_ns, sum(queued_ns) AS runq_ns, sum(told_ns) AS forced_ns, max(longest_ns) AS max_ns
FROM
(
    SELECT *, max(own_name) OVER (PARTITION BY of_host, of_pid, of_tid) AS later_name
    FROM
    (
        SELECT
            p.host AS of_host, p.host_pid AS of_pid, p.tid AS of_tid, p.pid AS own_pid, p.host_tid AS own_host_tid,
            if({apart:UInt8}, '', toString(p.service)) AS service,
            if({apart:UInt8}, toString(p.host), '') AS process,
            if({apart:UInt8}, p.host_pid, 0) AS process_pid,
            toString(p.thread_name) AS own_name, toString(p.comm) AS comm,
            toUInt64(sum(p.waits * toFloat64(p.weight))) AS n,
            toUInt64(sum(p.wait_ns * toFloat64(p.weight))) AS ns,
            toUInt64(sum(p.runq_ns * toFloat64(p.weight))) AS queued_ns,
            toUInt64(sum(p.forced_ns * toFloat64(p.weight))) AS told_ns,
            max(p.max_ns) AS longest_ns
        FROM ebpf_gil_wait_profile AS p
#include "window/chosen.inc"
        GROUP BY of_host, of_pid, of_tid, own_pid, own_host_tid, service, process, process_pid, own_name, comm
    )
)
GROUP BY service, process, process_pid, thread_name
ORDER BY wait_ns DESC, thread_name, service, process, process_pid
LIMIT 10000
