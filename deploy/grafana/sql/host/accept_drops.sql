-- Which listeners dropped handshakes, over time? Per second; overflow: the accept queue was full, the client waits a second and tries again.
SELECT
    $__timeInterval(start_time) AS time, concat(toString(host), ':', toString(local_port)) AS listener,
    sum(overflows * toFloat64(weight)) / $__interval_s AS overflowed,
    sum((drops - overflows) * toFloat64(weight)) / $__interval_s AS "dropped otherwise"
FROM ebpf_tcp_accept
WHERE $__timeFilter(start_time) AND kind = 'dropped'
#include "chosen.inc"
GROUP BY time, listener
ORDER BY time, listener
