-- Samples of threads on a CPU, each at the end of its time, for `underspan timeline --since`: first those of threads in the times of {slow} (host_tid, begin_us, end_us; apart from each other),
-- then an even choice of the others, as a file holds only so many of each kind: multiples of 2^32 divided by the golden ratio are spread evenly.
SELECT
#include "timeline/thread.inc"
    p.cpu AS cpu,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames
FROM ebpf_on_cpu AS p
#include "timeline/slow.inc"
#include "window/chosen.inc"
ORDER BY s.end_us >= toUnixTimestamp64Micro(p.end_time) DESC, bitAnd(toUInt64(toUnixTimestamp64Micro(p.end_time)) * 2654435761 + p.host_tid, 4294967295), start_us, host_tid
LIMIT {limit:UInt32}
