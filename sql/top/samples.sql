-- CPU time by thread and line, by the samples of ebpf_on_cpu, for `underspan top --since`. The line: the innermost of the application.
#include "top/named.inc"
    cpu_ns
FROM
(
    SELECT
#include "top/thread.inc"
        sum(p.duration_ns * toFloat64(p.weight)) AS cpu_ns
    FROM ebpf_on_cpu AS p
#include "window/chosen.inc"
        AND p.host_pid != 0
    GROUP BY host, host_pid, host_tid, main, comm, service, own_name, line
)
ORDER BY cpu_ns DESC, host, host_pid, host_tid, line
LIMIT 100000
