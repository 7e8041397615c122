-- What was not measured, for how many requests at most, and in which services? The sums of the kernel tell of an interval (10 s) and process
-- that some request lacked the part: the share is an upper bound. The service dashboard has the exact one. Without rows here, and with
-- an agent below, all was measured.
WITH toFloat64(weight) AS w
SELECT
    toString(reason) AS not_measured,
    round(sum(count * w)) AS requests_at_most,
    round(100 * sum(count * w) / (SELECT sum(count * toFloat64(weight)) FROM ebpf_request_profile WHERE $__timeFilter(start_time)
#include "chosen.inc"
    ), 1) AS percent_at_most,
    arrayStringConcat(arraySort(groupUniqArray(20)(toString(service))), ', ') AS services
FROM ebpf_request_profile
ARRAY JOIN ebpf_request_profile.not_measured AS reason
WHERE $__timeFilter(start_time)
#include "chosen.inc"
GROUP BY reason
ORDER BY requests_at_most DESC, not_measured
