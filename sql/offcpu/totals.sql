-- Time off the CPU by cause, and the time that the intervals of the sums cover, for `underspan offcpu --since`.
-- no_room: the part of waits that found no room in the kernel: of all processes of the host.
SELECT
    toString(p.cause) AS cause,
    p.host_pid = 0 AS no_room,
    toUInt64(sum(p.off_ns * toFloat64(p.weight))) AS off_ns,
    count() AS row_count,
    toUnixTimestamp64Micro(min(p.start_time)) AS begin_us, toUnixTimestamp64Micro(max(p.end_time)) AS end_us
FROM ebpf_off_cpu_profile AS p
#include "window/chosen.inc"
GROUP BY cause, no_room
ORDER BY cause, no_room
