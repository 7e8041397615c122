-- Time on a CPU by thread and stack, longest first, for `underspan offcpu --cpu --since`: what the samples of ebpf_on_cpu stand for. Columns,
-- names of threads and hashes of stacks: as in stacks.sql. Stacks after the first 20000 of all are one row of a thread (smaller).
WITH
    named AS
    (
        SELECT p.host AS of_host, p.host_pid AS of_pid, p.tid AS of_tid, max(toString(p.thread_name)) AS later_name
        FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
        GROUP BY of_host, of_pid, of_tid
    ),
    samples AS
    (
        SELECT
            service, process, if({apart:UInt8}, of_pid, 1) AS of_process, multiIf(own_name != '', own_name, later_name != '', later_name, comm) AS of_thread,
            stack, ns, cityHash64(service, process, of_process, of_thread, stack) AS sample
        FROM
        (
            SELECT
                p.host AS of_host, p.host_pid AS of_pid, p.tid AS of_tid, if({apart:UInt8}, '', toString(p.service)) AS service,
                if({apart:UInt8}, toString(p.host), '') AS process, toString(p.comm) AS comm, toString(p.thread_name) AS own_name,
                arrayMap(f -> toString(f), p.py_stack) AS stack, p.duration_ns * toFloat64(p.weight) AS ns
            FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
        ) AS sampled
        LEFT ANY JOIN named USING (of_host, of_pid, of_tid)
    ),
    long AS (SELECT sample FROM (SELECT sample, sum(samples.ns) AS ns FROM samples GROUP BY sample) ORDER BY ns DESC, sample LIMIT 20000)
SELECT
    sample NOT IN (SELECT sample FROM long) AS smaller, service, process, of_process AS host_pid, of_thread AS thread_name, 'cpu' AS cause, 0 AS idle, '' AS syscall,
    [] AS native, if(smaller, [], stack) AS py_stack, 0 AS waker_host_tid, '' AS waker_thread_name, [] AS waker_stack, toUInt64(sum(ns)) AS off_ns
FROM samples
GROUP BY smaller, service, process, host_pid, thread_name, py_stack
ORDER BY smaller, off_ns DESC, thread_name, py_stack
