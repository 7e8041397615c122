-- Time on a CPU by thread and stack, longest first, for `underspan offcpu --cpu --since`: what the samples of ebpf_on_cpu stand for. Columns,
-- names of threads and hashes of stacks: as in stacks.sql. Stacks after the first 20000 of all are one row of a thread (smaller).
WITH
    threads AS
    (
        SELECT cityHash64(p.host, p.host_pid, p.tid) AS thread, max(toString(p.thread_name)) AS later_name
        FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
        GROUP BY p.host, p.host_pid, p.tid
        HAVING later_name != '' AND min(p.thread_name) = ''
    ),
    samples AS
    (
        SELECT
            if({apart:UInt8}, '', p.service) AS service, if({apart:UInt8}, p.host, '') AS process, if({apart:UInt8}, p.host_pid, 1) AS of_process,
            if(p.thread_name != '', p.thread_name,
                transform(cityHash64(p.host, p.host_pid, p.tid), (SELECT arrayPushBack(groupArray(thread), 0) FROM threads),
                    (SELECT arrayPushBack(groupArray(later_name), '') FROM threads), toString(p.comm))) AS of_thread,
            p.py_stack AS stack, p.duration_ns * toFloat64(p.weight) AS ns,
            cityHash64(service, process, of_process, of_thread) AS whole_thread, cityHash64(whole_thread, CAST(stack AS Array(String))) AS sample
        FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
    ),
    long AS (SELECT sample FROM (SELECT sample, sum(samples.ns) AS ns FROM samples GROUP BY sample) ORDER BY ns DESC, sample LIMIT 20000)
SELECT
    sample NOT IN (SELECT sample FROM long) AS smaller,
    toString(any(samples.service)) AS service, toString(any(samples.process)) AS process, any(of_process) AS host_pid, toString(any(of_thread)) AS thread_name,
    'cpu' AS cause, 0 AS idle, '' AS syscall, [] AS native, if(smaller, [], CAST(any(stack) AS Array(String))) AS py_stack,
    0 AS waker_host_tid, '' AS waker_thread_name, [] AS waker_stack, toUInt64(sum(ns)) AS off_ns
FROM samples
GROUP BY smaller, if(smaller, whole_thread, sample)
ORDER BY smaller, off_ns DESC, thread_name, py_stack
