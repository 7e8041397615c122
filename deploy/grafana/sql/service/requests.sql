-- How many requests a second are served, by class of status? All requests; "no answer": the connection ended without one.
SELECT
    $__timeInterval(start_time) AS time,
    if(status_class = '', 'no answer', toString(status_class)) AS class,
    sum(count * toFloat64(weight)) / $__interval_s AS requests
FROM ebpf_request_profile
WHERE $__timeFilter(start_time)
#include "chosen.inc"
GROUP BY time, class
ORDER BY time, class
