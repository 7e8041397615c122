-- Holders of the GIL during waits that have rows, by thread and line, for `underspan gil --since`. The line is known of the holder at the
-- wait's begin. Threads of a name are summed as in waits.sql. Further holders are not distinguished: tid 0.
SELECT
    if({apart:UInt8}, '', toString(p.service)) AS service,
    if({apart:UInt8}, toString(p.host), '') AS process,
    if({apart:UInt8}, p.host_pid, 0) AS process_pid,
    if(holder.3 != '', holder.3, concat('thread ', toString(holder.1))) AS thread_name,
    if(i = 1 AND notEmpty(p.holder_py_stack), toString(p.holder_py_stack[1]), '') AS line,
    uniqExact(p.host, p.host_pid, holder.1) AS threads,
    any(p.pid) AS pid, any(holder.1) AS tid, any(p.host_pid) AS host_pid,
    sum(toFloat64(p.weight)) AS waits,
    sum(holder.2 * toFloat64(p.weight)) AS held_ns
FROM ebpf_gil_wait AS p
ARRAY JOIN p.holders AS holder, arrayEnumerate(p.holders) AS i
#include "window/chosen.inc"
    AND holder.1 != 0
GROUP BY service, process, process_pid, thread_name, line
ORDER BY held_ns DESC, thread_name, line, service, process, process_pid
LIMIT 20000
