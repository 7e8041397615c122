-- Whose CPU quota was too small in the last hour, and what it cost: throttled time per cgroup, and the share of its periods
-- in which it was used up.
SELECT
    host, container_id, pod_uid, cgroup,
    round(sum(throttled_ns) / 1e9, 3) AS throttled_s,
    sum(throttled_periods) AS used_up,
    round(100 * used_up / sum(periods), 1) AS percent_of_periods,
    round(any(quota_us) / any(period_us), 2) AS cpus_allowed,
    count() AS windows,
    max(duration_ms) AS longest_ms
FROM
(
    -- all processes of a cgroup have rows alike
    SELECT *, duration_ms FROM ebpf_cpu_throttle
    WHERE start_time > now() - INTERVAL 1 HOUR
    ORDER BY start_time
    LIMIT 1 BY host, cgroup_id, end_time
)
GROUP BY host, container_id, pod_uid, cgroup
ORDER BY throttled_s DESC
LIMIT 20;
