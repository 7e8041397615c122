-- Was anything measured? Per host and tracker, for the last hour: the share of time with a running agent and the gaps, events
-- seen and lost, events left out by the governor (the rows' weights stand for those), and the number of the last day's processes
-- that could not be watched (details: unwatched.sql). An empty table means that nothing happened only for the times measured
-- according to this query. NULL: the tracker did not run, or has no processes. A host is listed for a day after the last report.
WITH
    now64(6, 'UTC') AS until,
    until - INTERVAL 1 HOUR AS since,
    reports AS
    (
        -- reports are contiguous: a gap between two reports means that no agent ran
        SELECT
            *, (toUnixTimestamp64Micro(end_time) - toUnixTimestamp64Micro(start_time)) / 1e6 AS seconds,
            greatest(since, max(end_time) OVER (PARTITION BY host, tracker ORDER BY start_time, end_time
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS covered_to
        FROM ebpf_agent
        WHERE start_time >= since - INTERVAL 1 HOUR AND end_time >= since
    ),
    counted AS
    (
        SELECT
            host, tracker,
            arraySort(groupArrayIf((covered_to, start_time), start_time >= covered_to + INTERVAL 1 SECOND)) AS pauses,
            -- the next report may be underway
            if(dateDiff('second', max(end_time), until) > 60 + 2 * max(seconds),
                arrayPushBack(pauses, (max(end_time), until)), pauses) AS gaps,
            sum(seen) AS events, sum(reports.rows) AS row_count,
            sum(lost_ring + lost_state + bad_event) AS lost,
            sum(dropped_memory + dropped_spool + dropped_corrupt + dropped_refused + lost_crash) AS undelivered,
            sum(sampled) AS left_out,
            sumIf(seconds, sampling_level > 0 OR skip_shift > 0) / sum(seconds) AS thinned
        FROM reports
        GROUP BY host, tracker
    ),
    -- health of each tracker at the agent's start and at each change; ena: per interface
    words AS
    (
        SELECT host, tracker, max(is_live) AS runs, arrayStringConcat(arraySort(groupUniqArrayIf(why, NOT is_live)), '; ') AS because
        FROM
        (
            SELECT host, tracker, binary, argMax(live, time) AS is_live, argMax(reason, time) AS why
            FROM ebpf_probe_health
            WHERE host_pid = 0 AND time >= until - INTERVAL 1 DAY
            GROUP BY host, tracker, binary
        )
        GROUP BY host, tracker
    ),
    processes AS
    (
        SELECT host, tracker, countIf(is_live) AS watched, countIf(NOT is_live) AS refused
        FROM
        (
            SELECT host, tracker, host_pid, argMax(live, time) AS is_live
            FROM ebpf_probe_health
            WHERE time >= until - INTERVAL 1 DAY AND host_pid != 0
            GROUP BY host, tracker, host_pid
        )
        GROUP BY host, tracker
    ),
    heard AS
    (
        SELECT host, tracker, max(end_time) AS last_report
        FROM ebpf_agent
        WHERE start_time >= until - INTERVAL 1 DAY
        GROUP BY host, tracker
    ),
    known AS
    (
        SELECT host, tracker FROM heard
        UNION DISTINCT
        SELECT host, tracker FROM words WHERE NOT runs AND host IN (SELECT host FROM heard)
    ),
    if(state = 'measured', counted.gaps, [(since, until)]) AS not_covered
SELECT
    known.host AS host, known.tracker AS tracker,
    multiIf(words.runs = 0, concat('does not run: ', words.because),
        counted.events IS NULL, concat('no agent since ', formatDateTime(heard.last_report, '%F %T')),
        'measured') AS state,
    round(100 * (1 - arraySum(g -> toUnixTimestamp64Micro(g.2) - toUnixTimestamp64Micro(g.1), not_covered) / 3600e6), 1) AS measured_percent,
    arrayStringConcat(
        arrayMap(g -> concat(formatDateTime(g.1, '%T'), ' to ', formatDateTime(g.2, '%T')), not_covered), ', ') AS not_measured,
    if(state = 'measured', counted.events, NULL) AS seen,
    if(state = 'measured', counted.row_count, NULL) AS rows,
    if(state = 'measured', counted.lost, NULL) AS lost,
    if(state = 'measured', counted.undelivered, NULL) AS undelivered,
    if(state = 'measured', counted.left_out, NULL) AS left_out,
    if(state = 'measured', round(100 * counted.thinned, 1), NULL) AS thinned_percent_of_time,
    processes.watched AS processes_watched, processes.refused AS processes_refused
FROM known
LEFT JOIN heard ON heard.host = known.host AND heard.tracker = known.tracker
LEFT JOIN counted ON counted.host = known.host AND counted.tracker = known.tracker
LEFT JOIN words ON words.host = known.host AND words.tracker = known.tracker
LEFT JOIN processes ON processes.host = known.host AND processes.tracker = known.tracker
ORDER BY host, tracker
SETTINGS join_use_nulls = 1;
