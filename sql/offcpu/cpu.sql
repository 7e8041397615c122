-- Time on a CPU by thread and stack, longest first, for `underspan offcpu --cpu --since`: what the samples of ebpf_on_cpu stand for. Columns
-- and names of threads: as in stacks.sql. Stacks after the first 20000 of all are one row of a thread (smaller).
SELECT
    smaller, service, process, host_pid, thread_name, 'cpu' AS cause, 0 AS idle, '' AS syscall, [] AS native, if(smaller, [], stack) AS py_stack,
    0 AS waker_host_tid, '' AS waker_thread_name, [] AS waker_stack, sum(ns) AS off_ns
FROM
(
    SELECT service, process, host_pid, thread_name, stack, toUInt64(sum(its_ns)) AS ns, row_number() OVER (ORDER BY ns DESC, thread_name, stack) > 20000 AS smaller
    FROM
    (
        SELECT
            service, process, if({apart:UInt8}, of_pid, 1) AS host_pid, multiIf(own_name != '', own_name, later_name != '', later_name, comm) AS thread_name, stack, its_ns
        FROM
        (
            SELECT
                if({apart:UInt8}, '', toString(p.service)) AS service, if({apart:UInt8}, toString(p.host), '') AS process,
                p.host_pid AS of_pid, toString(p.comm) AS comm, toString(p.thread_name) AS own_name, arrayMap(f -> toString(f), p.py_stack) AS stack,
                max(own_name) OVER (PARTITION BY p.host, p.host_pid, p.tid) AS later_name,
                p.duration_ns * toFloat64(p.weight) AS its_ns
            FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
        )
    )
    GROUP BY service, process, host_pid, thread_name, stack
)
GROUP BY smaller, service, process, host_pid, thread_name, py_stack
ORDER BY smaller, off_ns DESC, thread_name, py_stack
