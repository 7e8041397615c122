-- For how long each host's agent ran a tracker in the window, and what the tracker could not keep, for `underspan requests`, `offcpu` and `gil`.
-- The time since the last report counts while the next one may be under way: of an agent that ends in order the last one is shorter than the
-- others, and of a killed one the next one is overdue, 60 s beyond its time (rows wait for flush_interval) by the clock, however old the window.
-- Nor does it count where the agent has reported since and said nothing of the tracker, which the governor has taken out.
WITH maxIf(report_end, of_tracker) AS last_end, maxIf(length, of_tracker) AS longest,
    dateDiff('microsecond', last_end, now64(6, 'UTC')) / 1e6 AS late
SELECT
    host,
    sumIf(seconds, of_tracker)
        + if(late < 60 + longest / 1e6 AND max(report_end) = last_end
            AND argMaxIf(length, (report_end, length), of_tracker) >= 0.9 * longest, rest, 0) AS measured_s,
    sumIf(lost, of_tracker) AS lost, sumIf(undelivered, of_tracker) AS undelivered,
    greatest(0, dateDiff('microsecond', greatest(last_end, {from:DateTime64(6, 'UTC')}), {to:DateTime64(6, 'UTC')})) / 1e6 AS rest
FROM
(
    SELECT
        toString(ebpf_agent.host) AS host, tracker = {tracker:String} AS of_tracker,
        end_time AS report_end,
        greatest(start_time, {from:DateTime64(6, 'UTC')}) AS begin,
        least(end_time, {to:DateTime64(6, 'UTC')}) AS end,
        greatest(0, dateDiff('microsecond', begin, end)) / 1e6 AS seconds,
        dateDiff('microsecond', start_time, end_time) AS length,
        lost_ring + lost_state + bad_event AS lost,
        dropped_memory + dropped_spool + dropped_corrupt + dropped_refused + lost_crash AS undelivered
    FROM ebpf_agent
    WHERE tracker IN ({tracker:String}, 'agent') AND start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND start_time < {to:DateTime64(6, 'UTC')}
        AND end_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR
        AND ({host:String} = '' OR ebpf_agent.host = {host:String})
)
GROUP BY host
HAVING max(of_tracker)
ORDER BY host
