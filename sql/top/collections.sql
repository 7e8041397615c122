-- Collections by thread and line, for `underspan top --since`. The line: the innermost of the application.
#include "top/named.inc"
    gc_ns
FROM
(
    SELECT
#include "top/thread.inc"
        sum(p.duration_ns * toFloat64(p.weight)) AS gc_ns
    FROM ebpf_gc_pause AS p
#include "window/chosen.inc"
        AND p.host_pid != 0
    GROUP BY host, host_pid, host_tid, main, comm, service, own_name, line
)
ORDER BY gc_ns DESC, host, host_pid, host_tid, line
LIMIT 100000
