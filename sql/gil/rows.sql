-- How much of the time of waits for the GIL has rows, and how much of that no known holder, for `underspan gil --since`.
SELECT
    count() AS row_count,
    sum(toFloat64(p.weight)) AS waits,
    sum(p.duration_ns * toFloat64(p.weight)) AS rows_ns,
    sum(greatest(0, toInt64(p.duration_ns) - toInt64(arraySum(arrayMap(h -> if(h.1 = 0, 0, h.2), p.holders)))) * toFloat64(p.weight)) AS unheld_ns,
    arrayStringConcat(arraySort(groupUniqArray(toString(p.method))), ', ') AS methods
FROM ebpf_gil_wait AS p
#include "window/chosen.inc"
