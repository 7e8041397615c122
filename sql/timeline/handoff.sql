-- Connections that waited for a thread, for `underspan timeline --since`: the longest first, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    p.queue AS queue, p.pickup AS pickup, p.client_wait_ns AS client_wait_ns, p.handoff_ns AS handoff_ns, p.main_thread_name AS main_thread_name,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames
FROM ebpf_handoff AS p
#include "window/chosen.inc"
ORDER BY duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
