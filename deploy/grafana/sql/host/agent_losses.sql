-- What did the agent lose or leave out? Per host and tracker. sampled: weights stand for these; lost: rows lack; undelivered: rows dropped on
-- the way to the database; waiting: rows not delivered at the last report.
SELECT
    host, tracker, argMax(version, end_time) AS version, max(end_time) AS last_report,
    sum(seen) AS seen, sum(ebpf_agent.rows) AS rows, sum(ebpf_agent.sampled) AS sampled,
    sum(lost_ring + lost_state + bad_event) AS lost,
    sum(dropped_memory + dropped_spool + dropped_corrupt + dropped_refused + lost_crash) AS undelivered,
    sum(read_fail) AS parts_not_read,
    argMax(queued_rows + spooled_rows, end_time) AS waiting
FROM ebpf_agent
WHERE $__timeFilter(start_time)
#include "chosen_host.inc"
GROUP BY host, tracker
ORDER BY lost + undelivered DESC, host, tracker
LIMIT 500
