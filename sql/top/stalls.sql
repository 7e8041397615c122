-- The longest stall of an event loop by thread and line, for `underspan top --since`. The line: the innermost of the application.
#include "top/named.inc"
    lag_ns
FROM
(
    SELECT
#include "top/thread.inc"
        max(p.duration_ns) AS lag_ns
    FROM ebpf_loop_stall AS p
#include "window/chosen.inc"
        AND p.host_pid != 0
    GROUP BY host, host_pid, host_tid, main, comm, service, own_name, line
)
ORDER BY lag_ns DESC, host, host_pid, host_tid, line
LIMIT 100000
