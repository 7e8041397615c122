-- How much of the time of waits for the GIL has rows, and how much of that no known holder, for `underspan gil --since`.
-- Which rows: they ended in the window, of the host, the pids (of their namespace or the host's); the lines behind --service: apply where a
-- service is asked for, those behind --spans: where the database also has spans. As in sql/offcpu/stacks.sql.
SELECT
    count() AS row_count,
    sum(toFloat64(p.weight)) AS waits,
    sum(p.duration_ns * toFloat64(p.weight)) AS rows_ns,
    sum(greatest(0, toInt64(p.duration_ns) - toInt64(arraySum(arrayMap(h -> if(h.1 = 0, 0, h.2), p.holders)))) * toFloat64(p.weight)) AS unheld_ns,
    arrayStringConcat(arraySort(groupUniqArray(toString(p.method))), ', ') AS methods
FROM ebpf_gil_wait AS p
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
