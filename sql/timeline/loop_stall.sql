-- Stalls of event loops, for `underspan timeline --since`: the longest first, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    p.loop AS loop, p.cpu_ns AS cpu_ns, p.runq_ns AS runq_ns, p.gil_ns AS gil_ns, p.lock_ns AS lock_ns, p.net_ns AS net_ns, p.disk_ns AS disk_ns,
    p.sleep_ns AS sleep_ns, p.other_ns AS other_ns, p.waiting AS waiting,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames
FROM ebpf_loop_stall AS p
#include "window/chosen.inc"
ORDER BY duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
