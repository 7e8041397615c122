-- Waits for the GIL that have rows, with the holders in the order of their begin, for `underspan timeline --since`: first those of threads in the times of {slow} (host_tid, begin_us, end_us; apart from each other),
-- then the longest, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    p.runq_ns AS runq_ns, p.forced_ns AS forced_ns, p.holders AS holders,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.holder_py_stack, 1, 40)), ' < '), 1, 4000) AS holder_py_frames
FROM ebpf_gil_wait AS p
#include "timeline/slow.inc"
#include "window/chosen.inc"
ORDER BY s.end_us > start_us DESC, duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
