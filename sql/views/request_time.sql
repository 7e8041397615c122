-- Where did the time of each request go, before and around the span? A row per server span started in [from, to); a row does not
-- depend on the window, so that adjacent windows add up:
--   SELECT * FROM request_time(from = '2026-01-31 09:00:00', to = '2026-01-31 10:00:00') ORDER BY total_ms DESC
--
-- total = accept + client_wait + handoff + gc + handler + rest, in milliseconds; each moment counts once, collections first:
--   total_ms       from the caller's begin (client span; without a client span, from the first wait seen) until caller and span ended
--   accept_ms      in the listener's accept queue
--   client_wait_ms accepted, before the client's first byte; NULL without a hand-off row
--   handoff_ms     bytes present, no worker thread; NULL if the thread is an event loop, whose reads have no rows
--   gc_ms          the process stopped for a collection, from the first wait to the end; gc_others_ms: the part of collections
--                  triggered by different threads or requests
--   handler_ms     the span without collections; split up by request_time_parts
--   rest_ms        the remainder: network, proxies, from the pick-up to the span's start, and parts named in not_measured
-- span_ms: the span's duration as in a trace viewer; caller_ms: the client span's.
--
-- NULL: not measured, with the reason per part in not_measured. A wait is assigned to a span only if known to belong to the
-- request: see `h_state`. sampled: trackers that kept only some events in that time (rows are an estimate; weight is the weight
-- of the row used). Waits in the accept queue under tcp_accept.min_duration_us (1 ms) have no row and count as rest. Spans longer
-- than an hour are not measured.
--
-- Comments for `underspan explain`: `--explain:` has a condition, and `--explain-step` is before a piece that explain asks by itself and puts
-- into the next question as literals (src/commands/explain/steps.h).
CREATE VIEW IF NOT EXISTS request_time AS
WITH
    -- of the window's spans, and earlier ones that may have used up a wait: the last end (no later rows are read), the pids (no rows of
    -- further processes are read), and pids of spans that name no host or container, or name the kernel. With more than 10,000 pids, rows
    -- of all processes are read: the array is part of the plan, in each of its places
    (SELECT (
            fromUnixTimestamp64Micro(maxIf(end_us, end_us - start_us <= 3600000000 AND time >= {from:DateTime64(6, 'UTC')}
                --explain: AND trace_id = {trace_id:String}
            ), 'UTC'),
            groupUniqArray(10001)(pid), groupUniqArrayIf(10001)(pid, boot_id != '' OR host = '' OR (pod_uid != '' AND container_id = '')))
        FROM otel_span
        WHERE kind = 'server' AND time < {to:DateTime64(6, 'UTC')} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 20 SECOND
            --explain: AND pid IN {pids:Array(UInt32)}
    ) AS of_spans,
    of_spans.1 AS last_end, of_spans.2 AS pids, of_spans.3 AS pids_by_rows, length(pids) > 10000 AS many_pids,
    -- the window's spans, and earlier spans that may have used up a wait; duplicates count once
    span AS
    (
        SELECT
            trace_id, span_id, CAST(service, 'String') AS service, CAST(span_name, 'String') AS span_name, host, container_id, pid, tid, peer_port, client_port, start_us, end_us,
            cityHash64(trace_id, parent_id) AS parent_key,
            -- without the namespace the span is found by its host
            if(pidns = 0, '', boot_id) AS boot_id, cityHash64(said, intDiv(start_us, 600000000)) AS said_then,
#include "views/said_line.inc"
            AS said_line
        FROM otel_span
        WHERE kind = 'server' AND time < {to:DateTime64(6, 'UTC')}
            AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 20 SECOND
            --explain: AND pid IN {pids:Array(UInt32)}
        LIMIT 1 BY trace_id, span_id
    ),
    caller AS
    (
        SELECT cityHash64(trace_id, span_id) AS key, cityHash64(host) AS at_host, if(boot_id = '', 0, cityHash64(boot_id)) AS at_boot, start_us, end_us
        FROM otel_span
        WHERE kind = 'client' AND time < {to:DateTime64(6, 'UTC')} + INTERVAL 1 MINUTE
            AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE
            --explain: AND trace_id = {trace_id:String}
    ),
    -- processes with rows, in slots of ten minutes independent of the window
    --explain-step
    process_row AS
    (
        -- grouped by a single number: several times faster than by its parts
        SELECT any(pid) AS p, any(host) AS h, any(container_id) AS c, any(pod_uid) AS u, any(boot_id) AS b, any(pidns) AS ns,
            any(its_slot) AS slot, any(its_tracker) AS tracker, max(toUnixTimestamp64Micro(end_time)) AS last_us
        FROM
        (
            SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 1 AS its_tracker FROM ebpf_handoff
            UNION ALL SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 2 AS its_tracker FROM ebpf_tcp_accept
            UNION ALL SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 4 AS its_tracker FROM ebpf_gc_pause
            UNION ALL SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 8 AS its_tracker FROM ebpf_gil_wait
            UNION ALL SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 32 AS its_tracker FROM ebpf_cpu_throttle
            -- the largest table, for pids of spans without a collection, and for spans without a host or container
            UNION ALL SELECT pid, host, container_id, pod_uid, boot_id, pidns, start_time, end_time, 16 AS its_tracker FROM ebpf_off_cpu
            WHERE many_pids OR (pid IN pids AND (pid IN pids_by_rows OR pid NOT IN
            (
                SELECT pid FROM ebpf_gc_pause
                WHERE start_time >= toStartOfInterval({from:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) - INTERVAL 20 MINUTE
                    AND start_time < toStartOfInterval({to:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) + INTERVAL 20 MINUTE
                    AND (many_pids OR pid IN pids)
            )))
        )
        WHERE start_time >= toStartOfInterval({from:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) - INTERVAL 20 MINUTE
            AND start_time < toStartOfInterval({to:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) + INTERVAL 20 MINUTE
            AND (many_pids OR pid IN pids)
        GROUP BY cityHash64(cityHash64(host), cityHash64(container_id), cityHash64(pod_uid), cityHash64(boot_id), pidns, pid,
            intDiv(toUnixTimestamp64Micro(start_time), 600000000) AS its_slot, its_tracker)
    ),
    -- the same under all identities that a span may have
    seen AS
    (
        SELECT
            cityHash64(arrayJoin(
#include "views/said.inc"
                ), arrayJoin([slot - 1, slot, slot + 1])) AS said_then,
            uniqExact(h, c) AS matches, any(toString(h)) AS host, any(toString(c)) AS container_id, groupBitOr(tracker) AS trackers,
            maxIf(last_us, tracker = 1) AS last_handoff_us, maxIf(last_us, tracker = 2) AS last_accept_us, maxIf(last_us, tracker = 4) AS last_gc_us,
            maxIf(last_us, tracker = 8) AS last_gil_us, maxIf(last_us, tracker = 16) AS last_off_cpu_us
        FROM process_row
        GROUP BY said_then
    ),
    elsewhere AS
    (
        SELECT cityHash64(p, arrayJoin([slot - 1, slot, slot + 1])) AS said_process, arrayStringConcat(arraySort(groupUniqArray(8)(toString(h))), ', ') AS hosts
        FROM process_row
        GROUP BY said_process
    ),
    -- reports of each host's agent; since r_run without a gap or a change of trackers
    report AS
    (
        SELECT r_host, r_from, r_to, r_ran, r_sampled,
            max(if(begins, r_from, 0)) OVER (PARTITION BY r_host ORDER BY r_from ROWS UNBOUNDED PRECEDING) AS r_run
        FROM
        (
            SELECT r_host, r_from, r_to, r_ran, r_sampled,
                r_from > lagInFrame(r_to) OVER w + 2000000 OR r_ran != lagInFrame(r_ran) OVER w AS begins
            FROM
            (
                SELECT
                    toString(ebpf_agent.host) AS r_host, toUnixTimestamp64Micro(start_time) AS r_from, max(toUnixTimestamp64Micro(end_time)) AS r_to,
                    groupBitOr(transform(toString(tracker), ['handoff', 'tcp_accept', 'gc_pause', 'gil_wait', 'off_cpu', 'cpu_throttle'], [1, 2, 4, 8, 16, 32], 0) AS bit) AS r_ran,
                    groupBitOrIf(bit, ebpf_agent.sampled > 0) AS r_sampled
                FROM ebpf_agent
                WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND start_time < {to:DateTime64(6, 'UTC')} + INTERVAL 1 HOUR
                GROUP BY r_host, r_from
            )
            WINDOW w AS (PARTITION BY r_host ORDER BY r_from ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        )
    ),
    handoff AS
    (
        SELECT
            cityHash64(cityHash64(toString(host), toString(container_id), pid), tid) AS h_thread, queue AS h_queue, weight AS h_weight, peer_port AS h_port,
            toUnixTimestamp64Micro(start_time) AS h_from, toUnixTimestamp64Micro(end_time) AS h_pickup,
            -- a worker that took the connection first may have waited for the bytes
            if(client_wait_ns > duration_ns, greatest(h_pickup, h_from + toInt64(intDiv(client_wait_ns, 1000))),
                h_pickup - intDiv(least(handoff_ns, duration_ns), 1000)) AS h_bytes
        FROM ebpf_handoff
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time < {to:DateTime64(6, 'UTC')}
            AND (many_pids OR pid IN pids)
    ),
    -- connections that waited for accept(), with the number taken before by the thread, within 10 s and within 5 ms
    accepted AS
    (
        SELECT
            x_thread, x_connection, x_from, x_to, x_weight,
            row_number() OVER (PARTITION BY x_thread ORDER BY x_to) AS x_number,
            count() OVER (PARTITION BY x_thread ORDER BY x_to RANGE BETWEEN 10000000 PRECEDING AND CURRENT ROW) AS x_lately,
            count() OVER (PARTITION BY x_thread ORDER BY x_to RANGE BETWEEN 5000 PRECEDING AND CURRENT ROW) AS x_burst
        FROM
        (
            SELECT cityHash64(toString(host), toString(container_id), pid) AS process,
                cityHash64(process, tid) AS x_thread, cityHash64(process, remote_port, 'port') AS x_connection, weight AS x_weight,
                toUnixTimestamp64Micro(start_time) AS x_from, toUnixTimestamp64Micro(end_time) AS x_to
            FROM ebpf_tcp_accept
            WHERE kind = 'accepted' AND start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time < {to:DateTime64(6, 'UTC')}
                AND (many_pids OR pid IN pids)
        )
    ),
    -- idle waits of a thread: requests taken before such a wait were answered. Only of processes that
    -- took a request, and of first threads, which may be event loops
    idle AS
    (
        SELECT cityHash64(cityHash64(toString(host), toString(container_id), pid), tid) AS i_thread, toUnixTimestamp64Micro(start_time) AS i_from,
            startsWith(toString(syscall), 'epoll') AS i_epoll
        FROM ebpf_off_cpu
        WHERE ebpf_off_cpu.idle AND start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 20 SECOND AND start_time < {to:DateTime64(6, 'UTC')}
            AND (many_pids OR pid IN pids)
            AND (tid = pid OR pid IN
            (
                SELECT pid FROM ebpf_handoff
                WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time < {to:DateTime64(6, 'UTC')}
                    AND (many_pids OR pid IN pids)
                UNION DISTINCT SELECT pid FROM ebpf_tcp_accept
                WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time < {to:DateTime64(6, 'UTC')}
                    AND (many_pids OR pid IN pids)
            ))
    ),
    -- cumulative time of collections per process at the end of each, so that spans need not join all collections. Those within an earlier
    -- one (of several threads, in subinterpreters) have g_to = g_from, the begin of the next one, too: not joined
    collection AS
    (
        SELECT g_who, greatest(g_began, g_reached) AS g_from, greatest(g_ended, g_began, g_reached) AS g_to,
            sum(greatest(g_ended, g_began, g_reached) - greatest(g_began, g_reached)) OVER (PARTITION BY g_who ORDER BY g_began, g_ended ROWS UNBOUNDED PRECEDING) AS g_sum
        FROM
        (
            SELECT cityHash64(toString(host), toString(container_id), pid) AS g_who, toUnixTimestamp64Micro(start_time) AS g_began, toUnixTimestamp64Micro(end_time) AS g_ended,
                max(g_ended) OVER (PARTITION BY g_who ORDER BY g_began, g_ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS g_reached
            FROM ebpf_gc_pause
            WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time <= last_end + INTERVAL 1 MINUTE
                AND (many_pids OR pid IN pids)
        )
    ),
    -- the same for the collections of each thread
    own AS
    (
        SELECT g_who, greatest(g_began, g_reached) AS g_from, greatest(g_ended, g_began, g_reached) AS g_to,
            sum(greatest(g_ended, g_began, g_reached) - greatest(g_began, g_reached)) OVER (PARTITION BY g_who ORDER BY g_began, g_ended ROWS UNBOUNDED PRECEDING) AS g_sum
        FROM
        (
            SELECT cityHash64(cityHash64(toString(host), toString(container_id), pid), tid) AS g_who, toUnixTimestamp64Micro(start_time) AS g_began, toUnixTimestamp64Micro(end_time) AS g_ended,
                max(g_ended) OVER (PARTITION BY g_who ORDER BY g_began, g_ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS g_reached
            FROM ebpf_gc_pause
            WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time <= last_end + INTERVAL 1 MINUTE
                AND (many_pids OR pid IN pids)
        )
    ),
    -- hosts with a report of the agent in a slot: there, a tracker without a report did not run
    reporting AS
    (
        SELECT cityHash64(r_host, arrayJoin([intDiv(r_from, 600000000) - 1, intDiv(r_from, 600000000), intDiv(r_from, 600000000) + 1])) AS host_slot, 1 AS reported
        FROM report
        GROUP BY host_slot
    ),
    -- reports about a process (outside of containers by pid, otherwise by container): trackers that refused the process, and why.
    -- Repeated each 12 hours (health_interval)
    health AS
    (
        SELECT health_key, 1 AS known, bitAnd(groupBitOr(bit), bitNot(groupBitOrIf(bit, live))) AS refused,
            anyIf(why, NOT live AND bit != 0 AND why != '') AS refusal
        FROM
        (
            SELECT cityHash64(toString(host), toString(container_id), if(container_id = '', host_pid, 0)) AS health_key,
                transform(toString(tracker), ['handoff', 'tcp_accept', 'gc_pause', 'gil_wait', 'off_cpu', 'cpu_throttle'], [1, 2, 4, 8, 16, 32], 0) AS bit,
                argMax(ebpf_probe_health.live, time) AS live, argMax(toString(reason), time) AS why
            FROM ebpf_probe_health
            WHERE host_pid != 0 AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 25 HOUR AND time < {to:DateTime64(6, 'UTC')} + INTERVAL 1 HOUR
                --explain: AND (container_id != '' OR host_pid IN {pids:Array(UInt32)})
            GROUP BY health_key, host_pid, bit
        )
        GROUP BY health_key
    ),
    -- each span with caller and process
    placed AS
    (
        SELECT
            s.trace_id AS trace_id, s.span_id AS span_id, s.service AS service, s.span_name AS span_name, s.tid AS tid,
            s.peer_port AS peer_port, s.client_port AS client_port, s.start_us AS start_us, s.end_us AS end_us, s.pid AS said_pid, s.boot_id AS boot_id, s.said_line AS said_line,
            -- a span without boot id has its host's clock, by name
            c.start_us AS caller_from, c.end_us AS caller_to,
            multiIf(bitAnd(s.boot_id != '', c.at_boot != 0), c.at_boot = cityHash64(s.boot_id), s.host = '', 0, c.at_host = cityHash64(s.host)) AS same_clock,
            p.matches AS matches, p.trackers AS trackers,
            -- trackers with rows as late as the span's end
            if(p.last_handoff_us >= s.end_us, 1, 0) + if(p.last_accept_us >= s.end_us, 2, 0) + if(p.last_gc_us >= s.end_us, 4, 0)
                + if(p.last_gil_us >= s.end_us, 8, 0) + if(p.last_off_cpu_us >= s.end_us, 16, 0) AS trackers_after,
            if(p.matches = 1, p.host, s.host) AS host, if(p.matches = 1, p.container_id, s.container_id) AS container_id,
            if(p.matches > 1 OR s.tid = 0, 0, s.pid) AS pid
        FROM span AS s
        LEFT ANY JOIN caller AS c ON c.key = s.parent_key
        LEFT ANY JOIN seen AS p ON p.said_then = s.said_then
    ),
    keyed AS (SELECT *, cityHash64(host, container_id, pid) AS process FROM placed),
    lined AS
    (
        SELECT *, if(pid = 0, 0, cityHash64(process, tid)) AS thread,
            multiIf(pid = 0, 0, peer_port != 0, cityHash64(process, peer_port, 'port'), cityHash64(process, tid)) AS line
        FROM keyed
        --explain: WHERE trace_id = {trace_id:String}
    ),
    -- previous_us: begin of the span before. A window function would sort by line, and the joins below, each looking up times in
    -- rows of a thread, would no longer go forward in these: 12.7 instead of 9.6 s of CPU for the sums of `make view-scale`'s hour
    --explain-step
    followed AS
    (
        SELECT s.*, f_start AS previous_us
        FROM lined AS s
        ASOF LEFT JOIN
        (
            SELECT start_us AS f_start,
#include "views/said_line.inc"
                AS f_line
            FROM otel_span
            WHERE kind = 'server' AND time < {to:DateTime64(6, 'UTC')}
                AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 20 SECOND
                --explain: AND pid IN {pids:Array(UInt32)}
        ) AS f ON if(s.pid = 0, 0, s.said_line) = f_line AND s.start_us > f_start
    ),
    -- the thread's last events before the span: hand-off h, accept() t, idle wait i; report of the agent r.
    -- From here on conditions are joined by bitAnd, and times by USING: the analyzer compares operands of AND with the whole query
    -- below, 20 ms each
    --explain-step
    met AS
    (
        SELECT
            s.*, r_ran, r_sampled, r_to, r_run, h_from, h_bytes, h_pickup, h_port, h_queue, h_weight, i_from, i_epoll,
            t.x_number AS t_number, t.x_from AS t_from, t.x_to AS t_to, t.x_burst AS t_burst, t.x_weight AS t_weight,
            -- connections accepted by the thread since the thread's previous span
            if(t.x_number = 0, 0, least(t.x_lately, t.x_number - b.x_number)) AS t_fresh,
            bitAnd(bitAnd(r_ran, 16) != 0, r_to >= start_us) AS idle_known,
            -- the request's hand-off: 1: the last of the thread; otherwise the reason why not
            multiIf(
                h_pickup = 0, 0,
                start_us - h_pickup > 10000000, 0, -- treated as none: how far back rows are read depends on the window
                h_pickup <= previous_us, 2, -- a later span of the thread exists
                bitAnd(bitAnd(peer_port != 0, h_port != 0), peer_port != h_port), 3, -- of a different connection
                bitAnd(same_clock, h_pickup <= caller_from), 4, -- over before the caller began
                bitAnd(bitAnd(h_port != 0, bitOr(peer_port = h_port, client_port = h_port)), bitAnd(i_from <= h_pickup + 2000, h_bytes <= start_us)), 1, -- or idle until the first byte
                h_bytes > start_us, 3, -- the bytes arrived later
                i_from > greatest(h_pickup, h_bytes), 5, -- the thread was idle since
                bitAnd(same_clock, h_from >= caller_from), 1,
                start_us - greatest(h_pickup, h_bytes) > multiIf(bitOr(bitAnd(r_sampled, 1) != 0, h_weight > 1), 5000,
                    bitAnd(bitAnd(r_ran, 16) != 0, r_to >= start_us), 1000000, 100000), 6, -- too long ago
                1) AS h_state
        FROM followed AS s
        ASOF LEFT JOIN accepted AS t ON s.thread = t.x_thread AND s.start_us >= t.x_to
        ASOF LEFT JOIN accepted AS b ON s.thread = b.x_thread AND s.previous_us >= b.x_to
        ASOF LEFT JOIN handoff AS h ON s.thread = h_thread AND s.start_us >= h_pickup
        ASOF LEFT JOIN idle AS i ON s.thread = i_thread AND s.start_us >= i_from
        ASOF LEFT JOIN report AS r ON s.host = r_host AND s.end_us > r_from
        WHERE s.start_us >= toUnixTimestamp64Micro({from:DateTime64(6, 'UTC')})
    ),
    -- the connection by which accept() is found: accepted just before a hand-off from accept(); a later request of the connection
    -- (keepalive) waited for accept() only as the connection's first request, known by the peer port: otherwise `unsure`
    connected AS
    (
        SELECT s.*, c.x_from AS c_from, c.x_to AS c_to, c.x_weight AS c_weight, c.x_thread AS c_thread,
            bitAnd(bitAnd(s.h_state = 1, s.h_queue != 'accept'), bitAnd(s.peer_port = 0, s.client_port = 0)) AS unsure,
            bitAnd(c.x_to > greatest(s.previous_us, 0),
                if(bitAnd(s.h_state = 1, s.h_queue = 'accept'), s.h_from + 20000, s.start_us) - c.x_to
                    <= if(bitAnd(s.h_state = 1, s.h_queue = 'accept'), 40000, 10000000)) AS c_near
        FROM met AS s
        ASOF LEFT JOIN accepted AS c
            ON multiIf(
                s.pid = 0, 0,
                bitAnd(s.h_state = 1, s.h_port != 0), cityHash64(s.process, s.h_port, 'port'),
                s.peer_port != 0, s.line,
                s.client_port != 0, cityHash64(s.process, s.client_port, 'port'),
                0) = c.x_connection
            AND if(bitAnd(s.h_state = 1, s.h_queue = 'accept'), s.h_from + 20000, s.start_us) >= c.x_to
    ),
    -- a_state 1: the accept() of the request's connection and the wait are known; 0: no wait of the connection,
    -- 2: ambiguous. a_from to a_to: the wait
    decided AS
    (
        SELECT *,
            if(same_clock, caller_from, 0) AS not_before,
            bitAnd(c_near, NOT unsure) AS c_fits,
            multiIf(
                c_fits, 1,
                c_near, 2,
                h_state IN (1, 5), 0,
                peer_port != 0, 0,
                t_number = 0, 0,
                start_us - t_to > 10000000, 0,
                bitAnd(same_clock, t_to <= caller_from), 0,
                i_from > t_to, if(bitAnd(i_epoll, t_fresh > 0), 2, 0), -- an event loop is idle until a slow client has sent the request
                t_fresh = 0, if(t_burst > 1, if(start_us - t_to <= 1000000, 2, 0), 0),
                t_fresh > 1, 2,
                start_us - t_to > multiIf(bitAnd(same_clock, t_from >= caller_from), 10000000, bitOr(bitAnd(r_sampled, 2) != 0, t_weight > 1), 5000,
                    idle_known, 1000000, 100000), 0,
                1) AS a_state,
            if(c_fits, c_from, t_from) AS a_from, if(c_fits, c_to, t_to) AS a_to, if(c_fits, c_weight, t_weight) AS a_weight
        FROM connected
    ),
    -- the request's time: [from_us, to_us); waits that began before the caller belong to the connection, not to the request
    clipped AS
    (
        SELECT *, greatest(not_before, if(a_state = 1, a_from, 0)) AS accept_from, greatest(not_before, if(a_state = 1, a_to, 0)) AS accept_to
        FROM decided
    ),
    waiting AS
    (
        SELECT *,
            if(h_state = 1, greatest(accept_to, h_from), accept_to) AS wait_from,
            if(h_state = 1, greatest(accept_to, h_from, h_bytes), accept_to) AS wait_bytes,
            if(h_state = 1, greatest(accept_to, h_from, h_bytes, h_pickup), accept_to) AS pickup_us,
            multiIf(a_state = 1, accept_from, h_state = 1, greatest(accept_to, h_from), start_us) AS first_us
        FROM clipped
    ),
    -- clocks of hosts may differ: the caller's span is moved by the minimum that covers the called span
    moved AS
    (
        SELECT *, multiIf(caller_from = 0, 0, same_clock, 0,
                caller_to - caller_from < end_us - first_us, least(first_us, caller_from) - caller_from,
                caller_from > first_us, first_us - caller_from, caller_to < end_us, end_us - caller_to, 0) AS skew_us
        FROM waiting
    ),
    bounded AS
    (
        SELECT *,
            if(caller_from = 0, first_us, least(first_us, caller_from + skew_us)) AS from_us,
            if(caller_from = 0, end_us, greatest(end_us, caller_to + skew_us)) AS to_us,
            -- boundaries of the request, and the owner of collections at each
            process AS by_process, thread AS by_thread, first_us AS at_first, accept_to AS at_accept, wait_from AS at_wait, wait_bytes AS at_bytes, pickup_us AS at_pickup, start_us AS at_start, end_us AS at_end, to_us AS at_done,
            if(bitAnd(bitAnd(a_state = 1, h_state = 1), accept_to > first_us), process, 0) AS by_accept,
            if(bitAnd(bitAnd(a_state = 1, h_state = 1), wait_from > accept_to), process, 0) AS by_wait,
            if(bitAnd(h_state = 1, wait_bytes > wait_from), process, 0) AS by_bytes, if(bitAnd(pickup_us != 0, pickup_us < start_us), process, 0) AS by_pickup,
            if(to_us > end_us, process, 0) AS by_done
        FROM moved
    ),
    -- cumulative collections of the process and the thread at each boundary. Equal boundaries are merged
    --explain-step
    told AS
    (
        SELECT
            s.* EXCEPT (by_process, by_thread, by_accept, by_wait, by_bytes, by_pickup, by_done, at_first, at_accept, at_wait, at_bytes, at_pickup, at_start, at_end, at_done),
            hosts, known, refused, refusal, reported,
            g1.g_sum - greatest(0, g1.g_to - first_us) AS gc_first,
            if(s.by_accept != 0, g9.g_sum - greatest(0, g9.g_to - accept_to), g1.g_sum - greatest(0, g1.g_to - first_us)) AS gc_accept,
            if(s.by_wait != 0, g10.g_sum - greatest(0, g10.g_to - wait_from), gc_accept) AS gc_wait,
            if(s.by_bytes != 0, g2.g_sum - greatest(0, g2.g_to - wait_bytes), gc_wait) AS gc_bytes,
            if(s.by_pickup != 0, g3.g_sum - greatest(0, g3.g_to - pickup_us), g4.g_sum - greatest(0, g4.g_to - start_us)) AS gc_pickup,
            g4.g_sum - greatest(0, g4.g_to - start_us) AS gc_start,
            g5.g_sum - greatest(0, g5.g_to - end_us) AS gc_end,
            if(s.by_done != 0, g6.g_sum - greatest(0, g6.g_to - to_us), g5.g_sum - greatest(0, g5.g_to - end_us)) AS gc_done,
            g7.g_sum - greatest(0, g7.g_to - start_us) AS own_start,
            g8.g_sum - greatest(0, g8.g_to - end_us) AS own_end
        FROM bounded AS s
        ASOF LEFT JOIN (SELECT g_who AS by_process, g_from AS at_first, g_to, g_sum FROM collection WHERE g_to > g_from) AS g1 USING (by_process, at_first)
        ASOF LEFT JOIN (SELECT g_who AS by_bytes, g_from AS at_bytes, g_to, g_sum FROM collection WHERE g_to > g_from) AS g2 USING (by_bytes, at_bytes)
        ASOF LEFT JOIN (SELECT g_who AS by_pickup, g_from AS at_pickup, g_to, g_sum FROM collection WHERE g_to > g_from) AS g3 USING (by_pickup, at_pickup)
        ASOF LEFT JOIN (SELECT g_who AS by_process, g_from AS at_start, g_to, g_sum FROM collection WHERE g_to > g_from) AS g4 USING (by_process, at_start)
        ASOF LEFT JOIN (SELECT g_who AS by_process, g_from AS at_end, g_to, g_sum FROM collection WHERE g_to > g_from) AS g5 USING (by_process, at_end)
        ASOF LEFT JOIN (SELECT g_who AS by_done, g_from AS at_done, g_to, g_sum FROM collection WHERE g_to > g_from) AS g6 USING (by_done, at_done)
        ASOF LEFT JOIN (SELECT g_who AS by_thread, g_from AS at_start, g_to, g_sum FROM own WHERE g_to > g_from) AS g7 USING (by_thread, at_start)
        ASOF LEFT JOIN (SELECT g_who AS by_thread, g_from AS at_end, g_to, g_sum FROM own WHERE g_to > g_from) AS g8 USING (by_thread, at_end)
        ASOF LEFT JOIN (SELECT g_who AS by_accept, g_from AS at_accept, g_to, g_sum FROM collection WHERE g_to > g_from) AS g9 USING (by_accept, at_accept)
        ASOF LEFT JOIN (SELECT g_who AS by_wait, g_from AS at_wait, g_to, g_sum FROM collection WHERE g_to > g_from) AS g10 USING (by_wait, at_wait)
        LEFT ANY JOIN reporting AS q ON cityHash64(s.host, intDiv(s.start_us, 600000000)) = q.host_slot
        LEFT ANY JOIN health AS y ON cityHash64(s.host, s.container_id, if(s.container_id = '', s.pid, 0)) = y.health_key
        LEFT ANY JOIN elsewhere AS e ON if(s.matches = 0, cityHash64(s.said_pid, intDiv(s.start_us, 600000000)), 0) = e.said_process
    ),
    asked AS
    (
        SELECT *,
            -- trackers that ran all the time, according to the agent, whose reports are read for an hour after the window
            multiIf(pid = 0, 0, span_us > 3600000000, 0, r_to < end_us, 0, r_run > first_us, 0, bitOr(matches = 1, known), r_ran, 0) AS covered,
            -- without reports (or after the last): trackers with rows ran
            multiIf(pid = 0, 0, span_us > 3600000000, 0, matches != 1, 0, NOT reported, trackers, r_to >= end_us, 0, r_to > end_us - 60000000, trackers_after, 0) AS shown,
            bitNot(if(matches = 1, bitAnd(refused, bitNot(trackers)), refused)) AS not_refused,
            -- the span's thread is not a process's first thread and did not take the connection: a different thread may have read the request and
            -- queued it inside the server (waitress, executors), without rows
            multiIf(tid = pid, 0, h_state != 0, 0, a_state = 1, bitAnd(c_fits, c_thread != thread), t_number = 0, 1, start_us - t_to > 10000000) AS brought,
            accept_to - accept_from AS accept_whole,
            if(h_state = 1, wait_bytes - wait_from, 0) AS client_whole,
            if(h_state = 1, pickup_us - wait_bytes, 0) AS handoff_whole,
            greatest(0, least(accept_to - accept_from, if(h_state = 1, gc_accept, gc_pickup) - gc_first)) AS accept_gc,
            end_us - start_us AS span_us,
            to_us - from_us AS total_us,
            multiIf(
                bitOr(said_pid = 0, tid = 0), 'the span does not say which thread it ran on: it needs process.pid and the native thread.id',
                matches > 1, concat('the rows of ', toString(matches), ' processes with pid ', toString(said_pid), ' fit: the span has to name its host (host.name) and container (container.id)'),
                bitAnd(boot_id != '', bitAnd(matches = 0, NOT known)),
                    concat('no rows of pid ', toString(said_pid), ' of the span''s kernel (boot id ', left(boot_id, 8), ') and PID namespace: no agent runs on its host, or one older than these ids'),
                if(matches = 0, if(hosts = '', 0, NOT has(splitByString(', ', hosts), host)), 0),
                    concat('no rows of pid ', toString(said_pid), ' on host ', if(host = '', '(the span names none)', host), '; there are some under host.name ', hosts),
                bitAnd(host = '', matches = 0), concat('the span names no host (host.name), and no process with pid ', toString(said_pid), ' has rows'),
                bitAnd(r_to = 0, NOT reported), concat('no agent ran on host ', host, ' then'),
                span_us > 3600000000, 'the span is longer than an hour',
                r_to < end_us, if(r_to > end_us - 60000000, concat('the agent of host ', host, ' has not reported that moment: ask again in half a minute, if it runs'), concat('no agent ran on host ', host, ' then')),
                r_run > first_us, concat('the agent of host ', host, ' did not run all the time'),
                bitAnd(matches = 0, NOT known), concat('the agent of host ', host, ' knew no Python with pid ', toString(said_pid)),
                refusal != '', concat('refused: ', refusal),
                concat('the tracker did not run on host ', host)) AS why_not
        FROM told
    ),
    measuring AS
    (
        SELECT *, bitAnd(bitOr(covered, shown), not_refused) AS measured, bitAnd(bitAnd(covered, bitOr(covered, shown)), not_refused) AS sure,
            -- the thread took connections from a different thread; the request's connection is unknown
            multiIf(h_state IN (3, 6), 1, h_state = 5, tid != pid, 0) AS unknown_pickup,
            multiIf(h_state != 0, 0, brought, 0, i_epoll, i_from >= start_us - 20000000, 0) AS is_loop,
            -- a thread that accepts and has one connection at a time reads at once; an event loop may be busy
            multiIf(h_state != 0, 0, brought, 0, if(a_state = 1, start_us - a_to <= 2000, 0), 0, i_epoll, 1, i_from < start_us - 20000000) AS read_late
        FROM asked
    ),
    answered AS
    (
        SELECT *,
            -- the lack of a row means no wait only for a tracker known to have run without sampling
            multiIf(h_state = 1, 1, unknown_pickup, 0, bitOr(brought, read_late), 0, bitAnd(r_sampled, 1) != 0, 0, bitAnd(sure, 1) != 0) AS handoff_measured,
            multiIf(a_state = 1, 1, a_state != 0, 0, bitAnd(bitOr(brought, unknown_pickup), bitAnd(peer_port = 0, client_port = 0)), 0, bitAnd(r_sampled, 2) != 0, 0, bitAnd(sure, 2) != 0) AS accept_measured,
            multiIf(bitAnd(measured, 4) = 0, 0, bitAnd(r_sampled, 4) = 0, 1, gc_done > gc_first) AS gc_measured,
            least(handoff_whole, gc_pickup - gc_bytes) AS handoff_gc,
            least(client_whole, gc_bytes - gc_wait) AS client_gc
        FROM measuring
    ),
    counted AS
    (
        SELECT *,
            if(gc_measured, gc_done - gc_first, 0) AS gc_us,
            accept_whole - if(gc_measured, accept_gc, 0) AS accept_us,
            client_whole - if(bitAnd(gc_measured, h_state = 1), client_gc, 0) AS client_us,
            handoff_whole - if(bitAnd(gc_measured, h_state = 1), handoff_gc, 0) AS handoff_us,
            span_us - if(gc_measured, gc_end - gc_start, 0) AS handler_us
        FROM answered
    )
SELECT
    trace_id, span_id, service, span_name, host, container_id, pid, tid,
    fromUnixTimestamp64Micro(from_us, 'UTC') AS begin_time,
    fromUnixTimestamp64Micro(start_us, 'UTC') AS span_time,
    if(h_state = 1, toString(h_queue), '') AS queue,
    total_us / 1000 AS total_ms,
    if(caller_from = 0, NULL, (caller_to - caller_from) / 1000) AS caller_ms,
    if(accept_measured, accept_us / 1000, NULL) AS accept_ms,
    if(bitAnd(handoff_measured, h_state = 1), client_us / 1000, NULL) AS client_wait_ms,
    if(handoff_measured, handoff_us / 1000, NULL) AS handoff_ms,
    if(gc_measured, gc_us / 1000, NULL) AS gc_ms,
    if(gc_measured, (gc_us - (own_end - own_start)) / 1000, NULL) AS gc_others_ms,
    handler_us / 1000 AS handler_ms,
    (total_us - accept_us - client_us - handoff_us - gc_us - handler_us) / 1000 AS rest_ms,
    span_us / 1000 AS span_ms,
    toFloat32(greatest(if(h_state = 1, h_weight, 1), if(a_state = 1, a_weight, 1))) AS weight,
    arrayFilter(t -> bitAnd(r_sampled, bitShiftLeft(1, indexOf(['handoff', 'tcp_accept', 'gc_pause', 'gil_wait', 'off_cpu', 'cpu_throttle'], t) - 1)) != 0,
        ['handoff', 'tcp_accept', 'gc_pause', 'gil_wait', 'off_cpu', 'cpu_throttle']) AS sampled,
    arrayFilter(t -> t != '', [
        if(accept_measured, '', concat('accept queue: ', multiIf(
            bitAnd(a_state = 2, unsure), 'its connection waited for its accept(), and the span has no peer port to tell whether this was its first request',
            bitAnd(a_state = 2, greatest(t_fresh, t_burst) = 1), 'a connection was accepted just before, and the span has no peer port to tell whether it was its own',
            a_state = 2, concat('several connections (', toString(greatest(t_fresh, t_burst)),
            ') were accepted just before, and the span has no peer port to tell which was its own'),
            bitAnd(bitAnd(covered, r_sampled), 2) != 0, 'the agent kept only some of its rows then (governor)',
            bitAnd(bitAnd(sure, 2) != 0, brought), 'the span\'s thread took no connection in the ten seconds before, and the span has no peer port',
            bitAnd(bitAnd(sure, 2) != 0, unknown_pickup), 'its thread\'s last hand-off was not this request\'s, and the span has no peer port', why_not))),
        if(handoff_measured, '', concat('hand-off: ', multiIf(
            h_state = 3, 'its thread last took another connection than the span\'s', h_state = 4, 'its thread last took a connection before the caller began',
            h_state = 5, 'its thread was idle after the last connection that it took',
            h_state = 6, concat('its thread last took a connection ', toString(intDiv(start_us - h_pickup, 1000)), ' ms before, too long to be sure it was this request\'s'),
            bitAnd(bitAnd(covered, r_sampled), 1) != 0, 'the agent kept only some of its rows then (governor)',
            bitAnd(bitAnd(sure, 1) != 0, brought), concat(if(a_state = 1, 'another thread accepted the request\'s connection',
                'the span\'s thread took no connection in the ten seconds before'), ': another one may have read the request and queued it'),
            bitAnd(bitAnd(sure, 1) != 0, read_late), concat(if(is_loop, 'the span\'s thread is an event loop',
                'the span\'s thread accepts by itself and may be an event loop'), ': no row tells how long a request waits there to be read'), why_not))),
        if(bitAnd(handoff_measured, h_state != 1), 'client: no row tells when the request\'s bytes came: a wait for them is in the rest', ''),
        if(gc_measured, '', concat('collections: ', if(bitAnd(measured, 4) != 0, 'the agent kept only some of its rows then (governor)', why_not))),
        if(bitAnd(is_loop, measured != 0), 'the request\'s own share: the span\'s thread is an event loop, whose other requests may have run meanwhile', '')]) AS not_measured,
    -- for request_time_parts and `underspan explain`: the boundaries, in microseconds
    from_us, to_us, start_us, end_us, if(a_state = 1, accept_from, 0) AS accept_from_us, if(a_state = 1, accept_to, 0) AS accept_to_us,
    if(h_state = 1, wait_from, 0) AS client_from_us, if(h_state = 1, wait_bytes, 0) AS handoff_from_us,
    if(h_state = 1, pickup_us, 0) AS handoff_to_us, measured, why_not, r_sampled AS thinned
FROM counted
-- planning this view takes a fifth less time without this search, which finds nothing here
SETTINGS optimize_aggregators_of_group_by_keys = 0;
