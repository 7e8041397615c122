-- Which allowance was exceeded on which interface, when? Runs of the last hour: intervals with packets queued or dropped,
-- joined to one while less than 5 s lie between them. Compare with the retransmits and slow requests of that time.
WITH exceeded AS (
    SELECT host, interface, start_time, end_time, a.1 AS allowance, a.2 AS packets
    FROM ebpf_ena
    ARRAY JOIN [
        ('bw_in', bw_in_allowance_exceeded), ('bw_out', bw_out_allowance_exceeded),
        ('pps', pps_allowance_exceeded), ('conntrack', conntrack_allowance_exceeded),
        ('linklocal', linklocal_allowance_exceeded)] AS a
    WHERE start_time > now() - INTERVAL 1 HOUR AND a.2 > 0
),
numbered AS (
    SELECT *, countIf(gap > 5) OVER (PARTITION BY host, interface, allowance ORDER BY start_time) AS run
    FROM (
        SELECT *, dateDiff('second', lagInFrame(end_time, 1, start_time) OVER
            (PARTITION BY host, interface, allowance ORDER BY start_time
             ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), start_time) AS gap
        FROM exceeded)
)
SELECT host, interface, allowance, min(start_time) AS began, max(end_time) AS ended, sum(packets) AS packets
FROM numbered
GROUP BY host, interface, allowance, run
ORDER BY began;
