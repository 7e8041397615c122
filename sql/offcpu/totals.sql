-- Time off the CPU by cause, and the time that the intervals of the sums cover, for `underspan offcpu --since`.
-- no_room: the part of waits that found no room in the kernel: of all processes of the host.
-- Which rows: as in stacks.sql.
SELECT
    toString(p.cause) AS cause,
    p.host_pid = 0 AS no_room,
    toUInt64(sum(p.off_ns * toFloat64(p.weight))) AS off_ns,
    count() AS row_count,
    toUnixTimestamp64Micro(min(p.start_time)) AS begin_us, toUnixTimestamp64Micro(max(p.end_time)) AS end_us
FROM ebpf_off_cpu_profile AS p
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
GROUP BY cause, no_room
ORDER BY cause, no_room
