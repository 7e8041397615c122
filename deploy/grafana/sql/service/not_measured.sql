-- Which parts were not measured, for which share of the requests, and why? Exact, by weight, from single requests. The time of such a
-- part is in a different part, or before the first seen byte.
SELECT of.1 AS not_measured, round(of.2, 1) AS requests, round(100 * of.2 / all_requests, 1) AS percent
FROM
(
    SELECT requests AS all_requests, reasons
    FROM
    (
#include "requests/totals.sql"
    )
)
ARRAY JOIN arrayZip(reasons.1, reasons.2) AS of
ORDER BY of.2 DESC, not_measured
