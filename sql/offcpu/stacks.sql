-- Time off the CPU by thread, cause and stack, longest first, for `underspan offcpu --since`. Threads of a name are summed: of all processes
-- of a service, or ({apart:UInt8}) of each process. A row may precede the first reading of its thread's name: it has the name of later
-- rows. Native frames only where no Python stack is known, as in a live measurement, or ({mixed:UInt8}) beside it.
-- bytes bounds the answer: the other stacks of a thread and cause are one row (smaller). Threads beyond the limit are in totals.sql.
-- Which stacks are long is found by their hashes, so that a million distinct ones need no memory for their texts.
-- Per row only a hash is made: of texts, as of a column of LowCardinality it takes three times as long.
WITH
    threads AS
    (
        SELECT cityHash64(p.host, p.host_pid, p.tid) AS thread, max(toString(p.thread_name)) AS later_name
        FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
        GROUP BY p.host, p.host_pid, p.tid
        HAVING later_name != '' AND min(p.thread_name) = ''
    ),
    waits AS
    (
        SELECT
            if({apart:UInt8} OR p.host_pid = 0, '', p.service) AS service,
            if({apart:UInt8}, p.host, '') AS process,
            if({apart:UInt8} OR p.host_pid = 0, p.host_pid, 1) AS of_process,
            multiIf(p.host_pid = 0, '', p.thread_name != '', p.thread_name,
                transform(cityHash64(p.host, p.host_pid, p.tid), (SELECT arrayPushBack(groupArray(thread), 0) FROM threads),
                    (SELECT arrayPushBack(groupArray(later_name), '') FROM threads), toString(p.comm))) AS of_thread,
            p.cause AS cause, p.idle AS idle, p.syscall AS of_syscall,
            if((notEmpty(p.py_stack) AND NOT {mixed:UInt8}) OR p.state = 'R' OR p.host_pid = 0, [], arrayConcat(p.kernel_stack, p.user_stack)) AS native,
            p.py_stack AS python,
            if({wakers:UInt8}, toUInt32(p.waker_host_tid != 0), 0) AS waker_tid,
            if({wakers:UInt8}, if(p.waker_thread_name != '', p.waker_thread_name, p.waker_comm), '') AS waker_name,
            if({wakers:UInt8}, p.waker_stack, []) AS waker_frames,
            p.off_ns * toFloat64(p.weight) AS ns,
            cityHash64(service, process, of_process, of_thread, cause, idle) AS thread_cause,
            cityHash64(thread_cause, of_syscall, CAST(native AS Array(String)), CAST(python AS Array(String)), waker_tid, waker_name,
                CAST(waker_frames AS Array(String))) AS wait
        FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
    ),
    long AS
    (
        SELECT wait
        FROM
        (
            SELECT wait, sum(bytes) OVER (ORDER BY ns DESC, wait ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bytes_to_here
            FROM
            (
                SELECT
                    wait, sum(waits.ns) AS ns,
                    any(200 + length(of_thread) + arraySum(f -> length(f) + 4, native) + arraySum(f -> length(f) + 4, python)
                        + arraySum(f -> length(f) + 4, waker_frames)) AS bytes
                FROM waits
                GROUP BY wait
            )
        )
        WHERE bytes_to_here <= {bytes:UInt64}
        ORDER BY bytes_to_here
        LIMIT 20000
    )
SELECT
    wait NOT IN (SELECT wait FROM long) AS smaller,
    toString(any(waits.service)) AS service, toString(any(waits.process)) AS process, any(of_process) AS host_pid,
    toString(any(of_thread)) AS thread_name, toString(any(waits.cause)) AS cause, any(waits.idle) AS idle,
    if(smaller, '', toString(any(of_syscall))) AS syscall,
    if(smaller, [], CAST(any(waits.native) AS Array(String))) AS native, if(smaller, [], CAST(any(python) AS Array(String))) AS py_stack,
    if(smaller, 0, any(waker_tid)) AS waker_host_tid, if(smaller, '', toString(any(waker_name))) AS waker_thread_name,
    if(smaller, [], CAST(any(waker_frames) AS Array(String))) AS waker_stack, toUInt64(sum(ns)) AS off_ns
FROM waits
GROUP BY smaller, if(smaller, thread_cause, wait)
ORDER BY smaller, off_ns DESC, thread_name, cause
LIMIT 20000 BY smaller
