-- Which CPU quotas were too small in the last hour, and at what cost: time per cgroup, and the share of periods with a used-up
-- quota? containers: containers with stopped processes. NULL: no period was counted.
SELECT
    host, cgroup,
    arrayStringConcat(arrayDistinct(arraySort(arrayFlatten(groupArray(containers)))), ' ') AS containers,
    round(sum(throttled) / 1e9, 3) AS throttled_s,
    sum(used_up_periods) AS used_up,
    round(100 * used_up / nullIf(sum(all_periods), 0), 1) AS percent_of_periods,
    round(argMax(quota, end_time) / nullIf(argMax(period, end_time), 0), 2) AS cpus_allowed,
    count() AS windows,
    round(max(lasted) / 1e6, 1) AS longest_ms
FROM
(
    -- each process of a cgroup has a row per window; a process that started within the window has a part
    SELECT
        host, cgroup_id, cgroup, end_time,
        groupUniqArray(left(container_id, 12)) AS containers,
        max(throttled_ns * weight) AS throttled, max(throttled_periods * weight) AS used_up_periods,
        max(periods * weight) AS all_periods, max(quota_us) AS quota, max(period_us) AS period, max(duration_ns) AS lasted
    FROM ebpf_cpu_throttle
    WHERE start_time >= now() - INTERVAL 1 HOUR
    GROUP BY host, cgroup_id, cgroup, end_time
)
GROUP BY host, cgroup_id, cgroup
ORDER BY throttled_s DESC, host, cgroup, cgroup_id
LIMIT 20;
