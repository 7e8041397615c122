-- For how long each host's agent ran a tracker in the window, and what the tracker could not keep, for `underspan requests`, `offcpu` and `gil`.
-- The time since the last report counts while the next one may be under way: of an agent that ends in order the last one is shorter than the
-- others, and of a killed one the next one is overdue, 60 s beyond its time (rows wait for flush_interval) by the clock, however old the window.
WITH dateDiff('microsecond', max(report_end), now64(6, 'UTC')) / 1e6 AS late
SELECT
    host,
    sum(seconds) + if(late < 60 + max(length) / 1e6 AND argMax(length, (report_end, length)) >= 0.9 * max(length), rest, 0) AS measured_s,
    sum(lost) AS lost, sum(undelivered) AS undelivered,
    greatest(0, dateDiff('microsecond', max(report_end), {to:DateTime64(6, 'UTC')})) / 1e6 AS rest
FROM
(
    SELECT
        toString(ebpf_agent.host) AS host,
        end_time AS report_end,
        greatest(start_time, {from:DateTime64(6, 'UTC')}) AS begin,
        least(end_time, {to:DateTime64(6, 'UTC')}) AS end,
        greatest(0, dateDiff('microsecond', begin, end)) / 1e6 AS seconds,
        dateDiff('microsecond', start_time, end_time) AS length,
        lost_ring + lost_state + bad_event AS lost,
        dropped_memory + dropped_spool + dropped_corrupt + dropped_refused + lost_crash AS undelivered
    FROM ebpf_agent
    WHERE tracker = {tracker:String} AND start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND start_time < {to:DateTime64(6, 'UTC')}
        AND end_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR
        AND ({host:String} = '' OR ebpf_agent.host = {host:String})
)
GROUP BY host
ORDER BY host
