-- The longest stall of an event loop by thread and line, for `underspan top --since`. The line: the innermost of the application.
-- A row may precede the first reading of its thread's name: it has the name of later rows.
-- Which rows: they ended in the window, of the host, the pids (of their namespace or the host's); the lines behind --service: apply where a
-- service is asked for, those behind --spans: where the database also has spans. As in sql/offcpu/stacks.sql.
SELECT host, host_pid, host_tid, main, comm, service, if(own_name != '', own_name, later_name) AS thread_name, line, lag_ns
FROM
(
    SELECT *, max(own_name) OVER (PARTITION BY host, host_pid, host_tid) AS later_name
    FROM
    (
        SELECT
        p.host AS host, p.host_pid AS host_pid, p.host_tid AS host_tid, p.pid = p.tid AS main, p.comm AS comm, p.service AS service,
        toString(p.thread_name) AS own_name,
#include "top/line.inc"
        max(p.duration_ns) AS lag_ns
        FROM ebpf_loop_stall AS p
#include "timeline/chosen.inc"
        AND p.host_pid != 0
        GROUP BY host, host_pid, host_tid, main, comm, service, own_name, line
    )
)
ORDER BY lag_ns DESC, host, host_pid, host_tid, line
LIMIT 100000
