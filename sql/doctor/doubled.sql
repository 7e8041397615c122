-- How long reports of a host's agents overlapped, a second agent's with the first's, and how many did, for `underspan doctor --clickhouse`. An agent's own reports
-- follow each other without a gap or an overlap; the same report twice is one.
SELECT host, countIf(overlap_ms >= 100) AS reports, sum(overlap_ms) / 1e3 AS overlap_s
FROM
(
    SELECT host, greatest(0, dateDiff('millisecond', start_time, least(end_time, before))) AS overlap_ms
    FROM
    (
        SELECT host, start_time, end_time,
            max(end_time) OVER (PARTITION BY host ORDER BY start_time, end_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM
        (
            SELECT DISTINCT toString(ebpf_agent.host) AS host, start_time, end_time
            FROM ebpf_agent
            WHERE tracker = 'agent' AND end_time >= {from:DateTime64(6, 'UTC')} AND end_time < {to:DateTime64(6, 'UTC')}
                AND ({host:String} = '' OR ebpf_agent.host = {host:String})
        )
    )
)
GROUP BY host
ORDER BY host
