-- The thread's time inside each server span: request_time with handler_ms split up, a row per server span. Reads all rows of
-- ebpf_off_cpu and ebpf_gil_wait of the window, so use a shorter window than for request_time:
--   SELECT * FROM request_time_parts(from = '2026-01-31 09:00:00', to = '2026-01-31 09:05:00') WHERE total_ms > 1000
--
-- total = accept + client_wait + handoff + gc + gil + lock + ... + other + throttled + run_queue + cpu + rest. Each moment
-- counts once, in this order: a collection, a wait for the GIL (without time on the run queue), a sleep by cause, the run queue
-- (throttled: while a CPU quota stopped the process). Overlapping intervals are swept in order of their ends, in any number.
--   cpu_ms        the rest of the span: on the CPU, in waits too short for a row (off_cpu.min_duration_us, gil_wait.min_duration_us),
--                 and in parts named in not_measured: pure CPU time only if gil_ms to run_queue_ms are all present
-- A part of a sampled tracker is a lower bound, and NULL without rows.
--   gc_others_ms  part of gc_ms: collections begun by different threads, or outside of the span
-- On an event loop's thread, waits (poll_ms above all) are the loop's waits while the span was open, including the time of
-- further requests.
CREATE VIEW IF NOT EXISTS request_time_parts AS
WITH
    (SELECT fromUnixTimestamp64Micro(maxIf(end_us, end_us - start_us <= 3600000000), 'UTC') FROM otel_span
        WHERE kind = 'server' AND time >= {from:DateTime64(6, 'UTC')} AND time < {to:DateTime64(6, 'UTC')}) AS last_end,
    -- class 0, 1 collections (own thread, different threads), 2 a CPU quota, 3 the GIL, 4 the run queue, then the causes; 14: no CPU
    -- at the end of a wait for the GIL: run queue if measured, otherwise GIL; the key is a process or a thread
    happened AS
    (
        SELECT cityHash64(toString(host), toString(container_id), pid) AS at, tid AS by, toUInt8(1) AS class,
            toUnixTimestamp64Micro(start_time) AS a, toUnixTimestamp64Micro(end_time) AS b
        FROM ebpf_gc_pause
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 MINUTE AND start_time <= last_end
            --explain: AND pid IN {pids:Array(UInt32)}
        UNION ALL
        SELECT cityHash64(toString(host), toString(container_id), pid), 0, 2, toUnixTimestamp64Micro(start_time), toUnixTimestamp64Micro(end_time)
        FROM ebpf_cpu_throttle
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 MINUTE AND start_time <= last_end
            --explain: AND pid IN {pids:Array(UInt32)}
        UNION ALL
        SELECT thread, 0, part.1, part.2, part.3
        FROM
        (
            -- until the wake-up with a free GIL, then the time without a CPU
            SELECT cityHash64(cityHash64(toString(host), toString(container_id), pid), tid) AS thread,
                toUnixTimestamp64Micro(start_time) AS began_us, toUnixTimestamp64Micro(end_time) AS ended_us,
                greatest(began_us, ended_us - toInt64(intDiv(runq_ns, 1000))) AS woken_us
            FROM ebpf_gil_wait
            WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 2 SECOND AND start_time <= last_end
                --explain: AND pid IN {pids:Array(UInt32)}
        )
        ARRAY JOIN [(toUInt8(3), began_us, woken_us), (toUInt8(14), woken_us, ended_us)] AS part
        WHERE part.3 > part.2
        UNION ALL
        SELECT thread, 0, part.1, part.2, part.3
        FROM
        (
            -- a sleep, then the time on the run queue
            SELECT cityHash64(cityHash64(toString(host), toString(container_id), pid), tid) AS thread,
                toUnixTimestamp64Micro(start_time) AS slept_us, toUnixTimestamp64Micro(end_time) AS ran_us,
                if(cause = 'preempt', slept_us, greatest(slept_us, ran_us - toInt64(intDiv(runq_ns, 1000)))) AS woken_us,
                toUInt8(transform(toString(cause), ['gil', 'lock', 'net', 'disk', 'page_fault', 'sleep', 'poll', 'pipe', 'child', 'other'], [3, 5, 6, 7, 8, 9, 10, 11, 12, 13], 13)) AS what
            FROM ebpf_off_cpu
            WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 2 SECOND AND start_time <= last_end
                --explain: AND pid IN {pids:Array(UInt32)}
        )
        ARRAY JOIN [(what, slept_us, woken_us), (toUInt8(4), woken_us, ran_us)] AS part
        WHERE part.3 > part.2
    ),
    happening AS
    (
        -- a thread may have slept for days after the last span
        SELECT at, by, class, a, b, arrayJoin(range(toUInt64(intDiv(a, 1000000)), toUInt64(intDiv(least(b, toUnixTimestamp64Micro(last_end)), 1000000)) + 1)) AS second
        FROM happened
    ),
    -- spans and intervals are joined by second, so that only intervals of the same time are compared. A span that was not measured may be
    -- of any length
    open AS
    (
        -- of_span: the analyzer compares each aggregate function below with the whole query, 10 ms each, so there is one for all columns
        SELECT trace_id, span_id, tid, start_us, end_us, measured,
            (
                service, span_name, host, container_id, pid, tid, begin_time, span_time, queue, total_ms, caller_ms, accept_ms, client_wait_ms,
                handoff_ms, gc_ms, gc_others_ms, handler_ms, rest_ms, span_ms, weight, sampled, not_measured, from_us, to_us, start_us, end_us,
                accept_from_us, accept_to_us, client_from_us, handoff_from_us, handoff_to_us, measured, why_not, thinned
            ) AS of_span,
            cityHash64(host, container_id, pid) AS process, arrayJoin([process, cityHash64(process, tid)]) AS at,
            arrayJoin(if(measured = 0, [0], range(toUInt64(intDiv(start_us, 1000000)), toUInt64(intDiv(end_us, 1000000)) + 1))) AS second
        FROM request_time(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
    ),
    inside AS
    (
        SELECT o.trace_id AS trace_id, o.span_id AS span_id, any(of_span) AS its,
            groupArrayIf(
                (multiIf(bitAnd(w.class = 1, w.by = o.tid), toUInt8(0), w.class = 14, toUInt8(if(bitAnd(o.measured, 16) != 0, 4, 3)), w.class), greatest(w.a, o.start_us), least(w.b, o.end_us)),
                bitAnd(bitAnd(o.measured != 0, second = greatest(intDiv(w.a, 1000000), intDiv(o.start_us, 1000000))),
                    bitAnd(w.a < o.end_us, w.b > o.start_us))) AS intervals
        FROM open AS o
        LEFT JOIN happening AS w USING (at, second)
        GROUP BY trace_id, span_id
    ),
    -- a SELECT for each step: an alias within a SELECT is expanded at each use
    turning AS
    (
        SELECT trace_id, span_id,
            its.1 AS service, its.2 AS span_name, its.3 AS host, its.4 AS container_id, its.5 AS pid, its.6 AS tid, its.7 AS begin_time,
            its.8 AS span_time, its.9 AS queue, its.10 AS total_ms, its.11 AS caller_ms, its.12 AS accept_ms, its.13 AS client_wait_ms,
            its.14 AS handoff_ms, its.15 AS gc_ms, its.16 AS gc_others_ms, its.17 AS handler_ms, its.18 AS rest_ms, its.19 AS span_ms,
            its.20 AS weight, its.21 AS sampled, its.22 AS before_measured, its.23 AS from_us, its.24 AS to_us, its.25 AS start_us, its.26 AS end_us,
            its.27 AS accept_from_us, its.28 AS accept_to_us, its.29 AS client_from_us, its.30 AS handoff_from_us, its.31 AS handoff_to_us,
            its.32 AS measured, its.33 AS why_not, its.34 AS thinned,
            arraySort(arrayConcat(arrayMap(i -> (i.2, i.1, 1), intervals), arrayMap(i -> (i.3, i.1, -1), intervals))) AS turns
        FROM inside
    ),
    opened AS
    (
        SELECT *,
            arrayMap(c -> arrayCumSum(t -> if(t.2 = c, t.3, 0), turns), range(14)) AS open_of,
            arrayMap((t, u) -> toInt64(u.1 - t.1), turns, arrayResize(arrayPopFront(turns), length(turns), turns[-1])) AS lasts
        FROM turning
    ),
    decided AS
    (
        SELECT *,
            -- class of each stretch between two boundaries
            arrayMap((n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13) -> multiIf(
                    n0 > 0, 0, n1 > 0, 1, n3 > 0, 3, bitAnd(n4 > 0, n2 > 0), 2, n4 > 0, 4,
                    n5 > 0, 5, n6 > 0, 6, n7 > 0, 7, n8 > 0, 8, n9 > 0, 9, n10 > 0, 10, n11 > 0, 11, n12 > 0, 12, n13 > 0, 13, -1),
                open_of[1], open_of[2], open_of[3], open_of[4], open_of[5], open_of[6], open_of[7], open_of[8], open_of[9], open_of[10], open_of[11], open_of[12], open_of[13], open_of[14]) AS counts_as
        FROM opened
    ),
    swept AS (SELECT *, arrayMap(c -> arraySum((d, k) -> if(k = c, d, 0), lasts, counts_as), range(14)) AS part FROM decided),
    known AS
    (
        SELECT *,
            bitAnd(measured, 8) != 0 OR part[4] > 0 AS gil_measured,
            bitAnd(measured, 16) != 0 OR arraySum(arraySlice(part, 5)) > 0 AS off_cpu_measured,
            bitAnd(measured, 32) != 0 OR part[3] > 0 AS throttle_measured,
            bitAnd(thinned, 8) = 0 AS all_gil, bitAnd(thinned, 16) = 0 AS all_off_cpu
        FROM swept
    ),
    -- gil, off_cpu: whether the lack of a row means no wait
    told AS (SELECT *, bitAnd(gil_measured, all_gil) AS gil, bitAnd(off_cpu_measured, all_off_cpu) AS off_cpu FROM known)
SELECT
    trace_id, span_id, service, span_name, host, container_id, pid, tid, begin_time, span_time, queue, total_ms, caller_ms, accept_ms, client_wait_ms, handoff_ms, gc_ms, gc_others_ms,
    if(bitOr(gil, part[4] > 0), part[4] / 1000, NULL) AS gil_ms,
    if(bitOr(off_cpu, part[6] > 0), part[6] / 1000, NULL) AS lock_ms,
    if(bitOr(off_cpu, part[7] > 0), part[7] / 1000, NULL) AS net_ms,
    if(bitOr(off_cpu, part[8] > 0), part[8] / 1000, NULL) AS disk_ms,
    if(bitOr(off_cpu, part[9] > 0), part[9] / 1000, NULL) AS page_fault_ms,
    if(bitOr(off_cpu, part[10] > 0), part[10] / 1000, NULL) AS sleep_ms,
    if(bitOr(off_cpu, part[11] > 0), part[11] / 1000, NULL) AS poll_ms,
    if(bitOr(off_cpu, part[12] > 0), part[12] / 1000, NULL) AS pipe_ms,
    if(bitOr(off_cpu, part[13] > 0), part[13] / 1000, NULL) AS child_ms,
    if(bitOr(off_cpu, part[14] > 0), part[14] / 1000, NULL) AS other_ms,
    if(bitOr(off_cpu, part[5] > 0), part[5] / 1000, NULL) AS run_queue_ms,
    if(bitAnd(throttle_measured, bitOr(off_cpu, bitAnd(off_cpu_measured, part[3] > 0))), part[3] / 1000, NULL) AS throttled_ms,
    handler_ms - arraySum(arraySlice(part, 3)) / 1000 AS cpu_ms,
    handler_ms, rest_ms, span_ms, weight, sampled,
    arrayConcat(before_measured, arrayFilter(t -> t != '', [
        if(gil, '', concat('GIL: ', if(gil_measured, 'the agent kept only some of its rows then (governor)', why_not))),
        if(off_cpu, '', concat('off the CPU (locks, network, disk, sleep, run queue): ',
            if(off_cpu_measured, 'the agent kept only some of its rows then (governor)', why_not))),
        if(throttle_measured, '', concat('CPU quota: ', why_not))])) AS not_measured,
    from_us, to_us, start_us, end_us, accept_from_us, accept_to_us, client_from_us, handoff_from_us, handoff_to_us, measured, why_not, thinned
FROM told
SETTINGS optimize_aggregators_of_group_by_keys = 0;
