-- Waits for locks, longest first, then waits for work, for `underspan offcpu --since`: of the rows, which are waits of off_cpu.min_duration_us
-- and longer. Of each stack the innermost frames: those of the lock itself, and the code around it. all_waits: other than for work, including
-- those beyond the limit.
SELECT
    toString(p.host) AS host, toString(p.boot_id) AS boot_id, p.host_pid AS host_pid, p.host_tid AS host_tid,
    if(p.thread_name != '', toString(p.thread_name), toString(p.comm)) AS thread_name,
    p.waker_host_tid AS waker_host_tid, -- a thread of another process (multiprocessing.Lock, flock()) with that process
    concat(if(p.waker_thread_name != '', toString(p.waker_thread_name), toString(p.waker_comm)),
        if(p.waker_pid IN (0, p.pid), '', concat(' of pid ', toString(p.waker_pid)))) AS waker_thread_name,
#include "offcpu/lock.inc"
    arrayMap(f -> if(length(f) > 400, concat(substringUTF8(f, 1, 100), '...', substringUTF8(f, -250)), toString(f)), arraySlice(p.py_stack, 1, 5)) AS py_stack,
    arrayMap(f -> substringUTF8(f, 1, 200), arraySlice(p.user_stack, 1, if(empty(p.py_stack), 6, 0))) AS user_stack,
    toUnixTimestamp64Micro(p.start_time) AS begin_us, toUnixTimestamp64Micro(p.end_time) AS end_us, p.runq_ns AS runq_ns,
    p.weight AS weight, p.idle AS idle, p.thread_name != '' AS thread_named, p.waker_thread_name != '' AS waker_named,
    sum(if(p.idle, 0, p.weight)) OVER () AS all_waits
FROM ebpf_off_cpu AS p
#include "window/chosen.inc"
    AND p.cause = 'lock'
ORDER BY idle, p.duration_ns DESC, begin_us, host_tid
LIMIT {limit:UInt32}
