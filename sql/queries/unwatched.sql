-- Which Python processes that appeared in the last day are not watched, by which trackers, and why? A process in this list has
-- no rows of the named trackers.
SELECT
    host, left(container_id, 12) AS container, host_pid, binary, python_version, reason,
    arraySort(groupArray(tracker)) AS trackers, max(last_time) AS since
FROM
(
    -- the last report about a process: a process stalled at first may be watched later
    SELECT
        host, host_pid, tracker, max(time) AS last_time, argMax(live, time) AS is_live, argMax(container_id, time) AS container_id,
        argMax(binary, time) AS binary, argMax(python_version, time) AS python_version, argMax(reason, time) AS reason
    FROM ebpf_probe_health
    WHERE time >= now() - INTERVAL 1 DAY AND host_pid != 0
    GROUP BY host, host_pid, tracker
)
WHERE NOT is_live
GROUP BY host, container_id, host_pid, binary, python_version, reason
ORDER BY host, host_pid, reason
LIMIT 1000;
