-- Which allowance was exceeded on which interface, and when? Runs that lasted into the last hour: intervals with packets queued
-- or dropped, joined if less than 5 s apart. Reads a day, so that each run is complete.
-- Compare with retransmissions and slow requests of the same time.
WITH exceeded AS
(
    SELECT host, interface, start_time, end_time, a.1 AS allowance, a.2 AS packets
    FROM
    (
        SELECT
            host, interface, start_time, end_time,
            [('bw_in', bw_in_allowance_exceeded), ('bw_out', bw_out_allowance_exceeded),
             ('pps', pps_allowance_exceeded), ('conntrack', conntrack_allowance_exceeded),
             ('linklocal', linklocal_allowance_exceeded)] AS allowances
        FROM ebpf_ena
        WHERE start_time >= now() - INTERVAL 1 DAY
            AND (bw_in_allowance_exceeded > 0 OR bw_out_allowance_exceeded > 0 OR pps_allowance_exceeded > 0
                OR conntrack_allowance_exceeded > 0 OR linklocal_allowance_exceeded > 0)
    )
    ARRAY JOIN allowances AS a
    WHERE a.2 > 0
),
numbered AS
(
    SELECT *, countIf(gap_us >= 5000000) OVER (PARTITION BY host, interface, allowance ORDER BY start_time) AS run
    FROM
    (
        SELECT
            *,
            toUnixTimestamp64Micro(start_time) - toUnixTimestamp64Micro(lagInFrame(end_time, 1, start_time) OVER
                (PARTITION BY host, interface, allowance ORDER BY start_time
                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)) AS gap_us
        FROM exceeded
    )
)
SELECT host, interface, allowance, min(start_time) AS began, max(end_time) AS ended, sum(packets) AS packets
FROM numbered
GROUP BY host, interface, allowance, run
HAVING ended >= now() - INTERVAL 1 HOUR
ORDER BY began, host, interface, allowance;
