-- Waits of threads off the CPU that have rows, for `underspan timeline --since`: first those of threads in the times of {slow} (host_tid, begin_us, end_us; apart from each other),
-- then the longest, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    p.runq_ns AS runq_ns, p.state AS state, p.cause AS cause, p.idle AS idle, p.syscall AS syscall, p.waker_host_tid AS waker_host_tid,
    p.waker_comm AS waker_comm, p.waker_thread_name AS waker_thread_name,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.kernel_stack, 1, 40)), ' < '), 1, 4000) AS kernel_frames,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.user_stack, 1, 40)), ' < '), 1, 4000) AS user_frames
FROM ebpf_off_cpu AS p
#include "timeline/slow.inc"
#include "window/chosen.inc"
ORDER BY idle, s.end_us > start_us DESC, duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
