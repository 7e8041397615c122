-- How many requests, and for how many a part was not measured and why, for `underspan requests`.
WITH toFloat64(weight) AS w
SELECT
    sum(w) AS requests, count() AS row_count,
    sumIf(w, accept_queue_ns IS NULL) AS accept_queue_unmeasured, sumIf(w, client_wait_ns IS NULL) AS client_wait_unmeasured,
    sumIf(w, queue_ns IS NULL) AS queue_unmeasured, sumIf(w, gil_ns IS NULL) AS gil_unmeasured,
    sumIf(w, gc_own_ns IS NULL) AS gc_own_unmeasured, sumIf(w, gc_sibling_ns IS NULL) AS gc_sibling_unmeasured,
    sumMap(arrayMap(reason -> toString(reason), not_measured), arrayMap(reason -> w, not_measured)) AS reasons
FROM ebpf_request AS r
#include "requests/chosen.inc"
