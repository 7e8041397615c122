-- Time off the CPU by thread, cause and line, from the sums of all waits, for `underspan top --since`. The line: the innermost of the application.
#include "top/named.inc"
    cause, idle, off_ns, runq_ns
FROM
(
    SELECT
#include "top/thread.inc"
        toString(p.cause) AS cause, p.idle AS idle,
        sum(p.off_ns * toFloat64(p.weight)) AS off_ns, sum(least(p.runq_ns, p.off_ns) * toFloat64(p.weight)) AS runq_ns
    FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
        AND p.host_pid != 0
    GROUP BY host, host_pid, host_tid, main, comm, service, own_name, line, cause, idle
)
ORDER BY off_ns DESC, host, host_pid, host_tid, line
LIMIT 100000
