-- Time off the CPU by thread, cause and stack, longest first, for `underspan offcpu --since`. Threads of a name are summed: of all processes
-- of a service, or ({apart:UInt8}) of each process. A row may precede the first reading of its thread's name: it has the name of later
-- rows. Native frames only where no Python stack is known, as in a live measurement, or ({mixed:UInt8}) beside it.
-- bytes bounds the answer: the other stacks of a thread and cause are one row (smaller). Threads beyond the limit are in totals.sql.
-- Which stacks are long is found by their hashes, so that a million distinct ones need no memory for their texts.
WITH
    named AS
    (
        SELECT p.host AS of_host, p.host_pid AS of_pid, p.tid AS of_tid, max(toString(p.thread_name)) AS later_name
        FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
        GROUP BY of_host, of_pid, of_tid
    ),
    waits AS
    (
        SELECT
            service, process, if({apart:UInt8} OR of_pid = 0, of_pid, 1) AS of_process,
            multiIf(of_pid = 0, '', own_name != '', own_name, later_name != '', later_name, comm) AS of_thread,
            cause, idle, syscall AS of_syscall, native AS of_native, python AS of_python, waker_tid, waker_name, waker_frames, ns,
            cityHash64(service, process, of_process, of_thread, cause, idle, syscall, native, python, waker_tid, waker_name, waker_frames) AS wait,
            200 + length(of_thread) + arraySum(arrayMap(f -> length(f) + 4, native)) + arraySum(arrayMap(f -> length(f) + 4, python))
                + arraySum(arrayMap(f -> length(f) + 4, waker_frames)) AS bytes
        FROM
        (
            SELECT
                p.host AS of_host, p.host_pid AS of_pid, p.tid AS of_tid,
                if({apart:UInt8} OR p.host_pid = 0, '', toString(p.service)) AS service,
                if({apart:UInt8}, toString(p.host), '') AS process,
                toString(p.thread_name) AS own_name, toString(p.comm) AS comm,
                toString(p.cause) AS cause,
                p.idle AS idle,
                toString(p.syscall) AS syscall,
                arrayMap(f -> toString(f), if((notEmpty(p.py_stack) AND NOT {mixed:UInt8}) OR p.state = 'R' OR p.host_pid = 0, [], arrayConcat(p.kernel_stack, p.user_stack))) AS native,
                arrayMap(f -> toString(f), p.py_stack) AS python,
                if({wakers:UInt8}, toUInt32(p.waker_host_tid != 0), 0) AS waker_tid,
                if({wakers:UInt8}, if(p.waker_thread_name != '', toString(p.waker_thread_name), toString(p.waker_comm)), '') AS waker_name,
                arrayMap(f -> toString(f), if({wakers:UInt8}, p.waker_stack, [])) AS waker_frames,
                p.off_ns * toFloat64(p.weight) AS ns
            FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
        ) AS waited
        LEFT ANY JOIN named USING (of_host, of_pid, of_tid)
    ),
    long AS
    (
        SELECT wait
        FROM
        (
            SELECT wait, sum(bytes) OVER (ORDER BY ns DESC, wait ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bytes_to_here
            FROM (SELECT wait, any(waits.bytes) AS bytes, sum(waits.ns) AS ns FROM waits GROUP BY wait)
        )
        WHERE bytes_to_here <= {bytes:UInt64}
        ORDER BY bytes_to_here
        LIMIT 20000
    )
SELECT
    wait NOT IN (SELECT wait FROM long) AS smaller, service, process, of_process AS host_pid, of_thread AS thread_name, cause, idle, if(smaller, '', of_syscall) AS syscall,
    if(smaller, [], of_native) AS native, if(smaller, [], of_python) AS py_stack, if(smaller, 0, waker_tid) AS waker_host_tid,
    if(smaller, '', waker_name) AS waker_thread_name, if(smaller, [], waker_frames) AS waker_stack, toUInt64(sum(ns)) AS off_ns
FROM waits
GROUP BY smaller, service, process, host_pid, thread_name, cause, idle, syscall, native, py_stack, waker_host_tid, waker_thread_name, waker_stack
ORDER BY smaller, off_ns DESC, thread_name, cause
LIMIT 20000 BY smaller
