-- How many rows of a kind the window has, and their time together, for `underspan timeline --since`: what a file leaves out is told by this.
SELECT count() AS row_count, sum(p.duration_ns) AS all_ns
FROM {table:Identifier} AS p
#include "window/chosen.inc"
    AND p.host_pid != 0
