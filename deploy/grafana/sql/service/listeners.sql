-- Were threads missing? Per listener, in the last hour of the window. busy_mean: threads that requests needed on average (arrivals x time a
-- thread is held by one), while an agent measured; busy_peak: the same of the busiest second; missing_peak: less the threads seen, below 0: to
-- spare. Empty: cannot be said (an event loop, a thread per connection, or no agent reported).
WITH
    service_sum_ns / nullIf(listener.requests, 0) / 1e9 AS held_s,
    connections > thread_minutes AND listener.requests > 0 AS tells
SELECT
    listener.host AS host, comm, kind, server_port, left(container_id, 12) AS container,
    round(listener.requests) AS requests, round(on_loops) AS on_loops, threads,
    round(1e3 * held_s, 1) AS thread_held_ms,
    round(waited_sum_ns / nullIf(listener.requests, 0) / 1e6, 1) AS waited_ms,
    round(peak_arrivals) AS peak_per_second,
    if(tells, round(listener.requests / nullIf(measured.seconds, 0) * held_s, 1), NULL) AS busy_mean,
    if(tells, round(peak_arrivals * held_s, 1), NULL) AS busy_peak,
    if(tells, round(peak_arrivals * held_s - threads, 1), NULL) AS missing_peak,
    max_queue_depth
FROM
(
#include "requests/listeners.sql"
) AS listener
LEFT JOIN
(
    SELECT toString(ebpf_agent.host) AS host, sum(toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time)) / 1e6 AS seconds
    FROM ebpf_agent
    WHERE start_time >= greatest($__fromTime, $__toTime - INTERVAL 1 HOUR) AND start_time <= $__toTime AND tracker = 'request'
    GROUP BY host
) AS measured ON measured.host = listener.host
ORDER BY missing_peak DESC NULLS LAST, requests DESC, host, server_port, container, comm
