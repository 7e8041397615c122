-- Holders of the GIL during waits that have rows, by thread and line, for `underspan gil --since`. The line is known of the holder at the
-- wait's begin. Threads of a name are summed as in waits.sql. Further holders are not distinguished: tid 0.
-- Which rows: they ended in the window, of the host, the pids (of their namespace or the host's); the lines behind --service: apply where a
-- service is asked for, those behind --spans: where the database also has spans. As in sql/offcpu/stacks.sql.
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
WHERE p.end_time >= {from:DateTime64(6, 'UTC')} AND p.end_time < {to:DateTime64(6, 'UTC')}
    AND p.start_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND p.start_time < {to:DateTime64(6, 'UTC')}
    AND ({host:String} = '' OR p.host = {host:String})
    AND (empty({pids:Array(UInt32)}) OR has({pids:Array(UInt32)}, p.pid) OR has({pids:Array(UInt32)}, p.host_pid))
    --service: AND (p.service = {service:String}
    --spans:       OR (toString(p.host), toString(p.container_id), p.pid) IN (SELECT host, container_id, pid FROM otel_span
    --spans:           WHERE service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
    --spans:       OR (toString(p.boot_id), p.pidns, p.pid) IN (SELECT boot_id, pidns, pid FROM otel_span
    --spans:           WHERE boot_id != '' AND service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
    --service: )
    AND holder.1 != 0
GROUP BY service, process, process_pid, thread_name, line
ORDER BY held_ns DESC, thread_name, line, service, process, process_pid
LIMIT 20000
