-- How long threads waited for the GIL by the holder at the wait's begin, from the sums of all waits, for `underspan top --since`.
SELECT p.host AS host, p.host_pid AS host_pid, p.holder_host_tid AS host_tid, sum(p.wait_ns * toFloat64(p.weight)) AS held_ns
FROM ebpf_gil_wait_profile AS p
#include "window/chosen.inc"
    AND p.holder_host_tid != 0
GROUP BY host, host_pid, host_tid
ORDER BY held_ns DESC, host, host_pid, host_tid
LIMIT 100000
