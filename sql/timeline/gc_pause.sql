-- Collections, for `underspan timeline --since`: the longest first, as a file holds only so many of each kind.
SELECT
#include "timeline/thread.inc"
    p.generation AS generation, p.reason AS reason, p.collected AS collected, p.uncollectable AS uncollectable, p.long_lived AS long_lived,
    substring(arrayStringConcat(arrayMap(f -> toString(f), arraySlice(p.py_stack, 1, 40)), ' < '), 1, 4000) AS py_frames
FROM ebpf_gc_pause AS p
#include "window/chosen.inc"
ORDER BY duration_ns DESC, start_us, host_tid
LIMIT {limit:UInt32}
