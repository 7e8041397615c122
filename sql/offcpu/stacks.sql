-- Time off the CPU by thread, cause and stack, longest first, for `underspan offcpu --since`. Threads of a name are summed: of all processes
-- of a service, or ({apart:UInt8}) of each process. A row may precede the first reading of its thread's name: it has the name of later
-- rows. Native frames only where no Python stack is known, as in a live measurement, or ({mixed:UInt8}) beside it.
-- bytes_to_here bounds the answer: smaller stacks of a thread and cause are one row (smaller). Threads beyond the limit are in totals.sql.
SELECT
    bytes_to_here > {bytes:UInt64} AS smaller, service, process, host_pid, thread_name, cause, idle, if(smaller, '', syscall) AS syscall,
    if(smaller, [], native) AS native, if(smaller, [], py_stack) AS py_stack, if(smaller, 0, waker_host_tid) AS waker_host_tid,
    if(smaller, '', waker_thread_name) AS waker_thread_name, if(smaller, [], waker_stack) AS waker_stack, sum(off_ns) AS off_ns
FROM
(
    SELECT
        *,
        sum(200 + length(thread_name) + arraySum(arrayMap(f -> length(f) + 4, native)) + arraySum(arrayMap(f -> length(f) + 4, py_stack))
            + arraySum(arrayMap(f -> length(f) + 4, waker_stack)))
            OVER (ORDER BY off_ns DESC, thread_name, cause, syscall, py_stack, native ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bytes_to_here
    FROM
    (
        SELECT
            service, process, if({apart:UInt8} OR of_pid = 0, of_pid, 1) AS host_pid,
            multiIf(of_pid = 0, '', own_name != '', own_name, later_name != '', later_name, comm) AS thread_name,
            cause, idle, syscall, native, py_stack, waker_host_tid, waker_thread_name, waker_stack,
            sum(ns) AS off_ns
        FROM
        (
            SELECT *, max(own_name) OVER (PARTITION BY of_host, of_pid, of_tid) AS later_name
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
                    arrayMap(f -> toString(f), p.py_stack) AS py_stack,
                    if({wakers:UInt8}, toUInt32(p.waker_host_tid != 0), 0) AS waker_host_tid,
                    if({wakers:UInt8}, if(p.waker_thread_name != '', toString(p.waker_thread_name), toString(p.waker_comm)), '') AS waker_thread_name,
                    arrayMap(f -> toString(f), if({wakers:UInt8}, p.waker_stack, [])) AS waker_stack,
                    toUInt64(sum(p.off_ns * toFloat64(p.weight))) AS ns
                FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
                GROUP BY of_host, of_pid, of_tid, service, process, own_name, comm, cause, idle, syscall, native, py_stack,
                    waker_host_tid, waker_thread_name, waker_stack
            )
        )
        GROUP BY service, process, host_pid, thread_name, cause, idle, syscall, native, py_stack, waker_host_tid, waker_thread_name, waker_stack
    )
)
GROUP BY smaller, service, process, host_pid, thread_name, cause, idle, syscall, native, py_stack, waker_host_tid, waker_thread_name, waker_stack
ORDER BY smaller, off_ns DESC, thread_name, cause
LIMIT 20000 BY smaller
