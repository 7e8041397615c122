-- Where did the time of each request go? The request ledger: a row per row of ebpf_request started in [from, to), with the
-- server span of the request if known:
--   SELECT * FROM request(from = '2026-01-31 09:00:00', to = '2026-01-31 10:00:00') ORDER BY duration_ms DESC
--
-- duration_ms is the sum of the parts, in column order: before the handler (accept_queue, client_wait, queue, pool_wait), the
-- thread (cpu to other) or the event loop (await, loop_busy), the client (client_slow). A part that was not measured is NULL,
-- with a reason in not_measured; the time is in a different part or before start_time. handled_time: a thread took the request
-- up. Sums and counts need weight.
--
-- span_by: how the span was found. traceparent: the request carried the caller's ids, and a span of the process has that caller
-- as parent. traceparent alone: the same, for a span without process.pid. thread: the request carried no ids, and exactly one
-- server span began on the thread during the request (servers with one request per thread). Empty: no known span, with the
-- reason in no_span. A span or request with two matches is not joined. A process is identified by
-- pid with boot id and PID namespace, or with host and container, as far as the span has these. service: as the span says; own_service: of
-- the process. Questions without spans should use ebpf_request, which has the same columns.
CREATE VIEW IF NOT EXISTS request AS
WITH
    -- end of the last request; whether any request is found by thread
    (
        SELECT (max(end_time), countIf(trace_id = '' AND model = 'thread') > 0) FROM ebpf_request
        WHERE start_time >= {from:DateTime64(6, 'UTC')} AND start_time < {to:DateTime64(6, 'UTC')}
            --explain: AND pid IN {pids:Array(UInt32)}
    ) AS found,
    found.1 AS last_end,
    found.2 AS threads_needed,
    -- parents of several server spans: services called with the same ids by one caller. Arrays, so that each is found once
    (
        SELECT groupArray(its_sent) FROM
        (
            SELECT cityHash64(trace_id, parent_id) AS its_sent
            FROM otel_span
            WHERE kind = 'server' AND parent_id != ''
                --explain: AND trace_id = {span_trace:String}
                AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 SECOND AND time <= last_end + INTERVAL 1 SECOND
            GROUP BY its_sent
            HAVING min(cityHash64(span_id)) != max(cityHash64(span_id))
        )
    ) AS shared,
    -- ids carried by several requests: passed on unchanged or repeated by a proxy; and ids of several requests of a process
    (
        SELECT groupArray(its_sent) FROM
        (
            SELECT cityHash64(trace_id, parent_span_id) AS its_sent
            FROM ebpf_request
            WHERE start_time >= {from:DateTime64(6, 'UTC')} AND start_time < {to:DateTime64(6, 'UTC')} AND trace_id != ''
                --explain: AND pid IN {pids:Array(UInt32)}
            GROUP BY its_sent
            HAVING count() > 1
        )
    ) AS repeated,
    (
        SELECT groupArray(sent_here) FROM
        (
            SELECT cityHash64(cityHash64(trace_id, parent_span_id), cityHash64(toString(host), toString(container_id), pid)) AS sent_here
            FROM ebpf_request
            WHERE start_time >= {from:DateTime64(6, 'UTC')} AND start_time < {to:DateTime64(6, 'UTC')} AND trace_id != ''
                AND cityHash64(trace_id, parent_span_id) IN repeated
                --explain: AND pid IN {pids:Array(UInt32)}
            GROUP BY sent_here
            HAVING count() > 1
        )
    ) AS repeated_here,
    asked AS
    (
        SELECT *, server_ms, hidden_ms, service AS own_service, trace_id AS carried, cityHash64(toString(host), toString(container_id), pid) AS process,
#include "views/handled_us.inc"
            AS handled_us,
            cityHash64(trace_id, parent_span_id) AS sent,
            multiIf(trace_id != '', if(sent IN shared, cityHash64(sent, process), sent), model = 'thread', cityHash64(process, request_id), 0) AS found_by
        FROM ebpf_request
        WHERE start_time >= {from:DateTime64(6, 'UTC')} AND start_time < {to:DateTime64(6, 'UTC')}
            --explain: AND pid IN {pids:Array(UInt32)}
    ),
    -- processes of these minutes under all identities that a span may have (said). its_process 1: ambiguous
    said_process AS
    (
        SELECT
            arrayJoin(
#include "views/said.inc"
            ) AS said,
            if(uniqExact(h, c) = 1, any(cityHash64(h, c, p)), 1) AS its_process
        FROM
        (
            SELECT DISTINCT toString(host) AS h, toString(container_id) AS c, toString(pod_uid) AS u, pid AS p, toString(boot_id) AS b, pidns AS ns
            FROM ebpf_request
            WHERE start_time >= toStartOfInterval({from:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) - INTERVAL 10 MINUTE
                AND start_time < toStartOfInterval({to:DateTime64(6, 'UTC')}, INTERVAL 10 MINUTE) + INTERVAL 20 MINUTE
                --explain: AND pid IN {pids:Array(UInt32)}
        )
        GROUP BY said
    ),
    -- the span of each request, or an ambiguity: by the caller's ids, and by thread
    fitting AS
    (
        SELECT key, min(its_hash) != max(its_hash) AS several, any(its_process) AS of_process, any(trace_of_thread) AS its_trace,
            any(its_id) AS its_span, any(service) AS its_service, any(span_name) AS its_name, any(start_us) AS its_start, any(end_us) AS its_end
        FROM
        (
            SELECT s.span_id AS its_id, cityHash64(s.span_id) AS its_hash, s.process AS its_process, s.service AS service, s.span_name AS span_name,
                s.start_us AS start_us, s.end_us AS end_us,
                arrayJoin(arrayFilter(k -> k.1 != 0, [(s.sent_key, ''), (if(bitAnd(s.tid != 0, s.start_us <= r.ended_us), r.found_by, 0), s.trace_id)])) AS by,
                by.1 AS key, by.2 AS trace_of_thread
            FROM
            (
                SELECT trace_id, span_id, service, span_name, start_us, end_us, tid, cityHash64(trace_id, parent_id) AS its_sent,
                    if(o.pid = 0, 0, if(p.its_process = 0, 2, p.its_process)) AS process, cityHash64(process, tid) AS thread,
                    if(parent_id = '', 0, if(its_sent IN shared, cityHash64(its_sent, process), its_sent)) AS sent_key
                FROM otel_span AS o
                LEFT ANY JOIN said_process AS p ON o.said = p.said
                WHERE kind = 'server' AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 SECOND AND time <= last_end + INTERVAL 1 SECOND
                    AND (parent_id != '' OR threads_needed)
                    --explain: AND (threads_needed OR trace_id = {span_trace:String})
            ) AS s
            ASOF LEFT JOIN
            (
                SELECT cityHash64(toString(host), toString(container_id), pid) AS process, cityHash64(process, request_id) AS found_by,
                    cityHash64(process, tid) AS thread, toUnixTimestamp64Micro(end_time) AS ended_us,
#include "views/handled_us.inc"
                    AS handled_us
                FROM ebpf_request
                WHERE start_time >= {from:DateTime64(6, 'UTC')} AND start_time < {to:DateTime64(6, 'UTC')} AND trace_id = '' AND model = 'thread'
                    --explain: AND pid IN {pids:Array(UInt32)}
            ) AS r ON s.thread = r.thread AND s.start_us >= r.handled_us
        )
        GROUP BY key
    ),
    met AS
    (
        SELECT *, multiIf(
            found_by = 0, if(model = 'loop', 1, 2),
            carried = '', multiIf(its_span = '', 3, several, 4, 0),
            its_span = '', if(sent IN shared, 6, 5),
            several, 7,
            if(of_process = 0, sent IN repeated, cityHash64(sent, process) IN repeated_here), 8,
            of_process = 1, 9,
            bitAnd(of_process != 0, of_process != process), 6,
            its_start < toUnixTimestamp64Micro(start_time) - 1000, 10,
            its_start > toUnixTimestamp64Micro(end_time) + 1000, 10,
            0) AS unknown
        FROM asked
        LEFT ANY JOIN fitting ON found_by = key
    )
SELECT
    request_id, host, container_id, pod_uid, pid, tid, host_pid, host_tid, comm, thread_name, start_time,
    fromUnixTimestamp64Micro(handled_us, 'UTC') AS handled_time, end_time, weight, method, path, status,
    duration_ns / 1e6 AS duration_ms, server_ms, hidden_ms,
    accept_queue_ns / 1e6 AS accept_queue_ms, client_wait_ns / 1e6 AS client_wait_ms, queue_ns / 1e6 AS queue_ms, pool_wait_ns / 1e6 AS pool_wait_ms,
    cpu_ns / 1e6 AS cpu_ms, runq_ns / 1e6 AS runq_ms, throttled_ns / 1e6 AS throttled_ms, gil_ns / 1e6 AS gil_ms, gc_own_ns / 1e6 AS gc_own_ms,
    gc_sibling_ns / 1e6 AS gc_sibling_ms, lock_ns / 1e6 AS lock_ms, net_ns / 1e6 AS net_ms, disk_ns / 1e6 AS disk_ms, fault_ns / 1e6 AS fault_ms,
    sleep_ns / 1e6 AS sleep_ms, pipe_ns / 1e6 AS pipe_ms, child_ns / 1e6 AS child_ms, other_ns / 1e6 AS other_ms, await_ns / 1e6 AS await_ms,
    loop_busy_ns / 1e6 AS loop_busy_ms, client_slow_ns / 1e6 AS client_slow_ms,
    net_peer_ip, net_peer_port, net_peer_path, net_peer_ns / 1e6 AS net_peer_ms, body_wait_ns / 1e6 AS body_wait_ms, not_measured,
    if(carried = '', if(unknown = 0, its_trace, ''), carried) AS trace_id, parent_span_id, if(unknown = 0, its_span, '') AS span_id,
    if(unknown = 0, its_service, '') AS service, if(unknown = 0, its_name, '') AS span_name,
    if(unknown = 0, fromUnixTimestamp64Micro(its_start, 'UTC'), NULL) AS span_time, if(unknown = 0, (its_end - its_start) / 1000, NULL) AS span_ms,
    multiIf(unknown != 0, '', carried = '', 'thread', of_process = 0, 'traceparent alone', 'traceparent') AS span_by,
    ['', 'the request carried no traceparent, and its thread does not tell (an event loop)',
        'the request carried no traceparent, and its thread does not tell (a pool behind the one that read it)',
        'the request carried no traceparent, and no server span began on its thread meanwhile',
        'the request carried no traceparent, and several server spans began on its thread meanwhile',
        'no server span has its traceparent',
        'the server span with its traceparent is of another process',
        'several server spans have its traceparent',
        'several requests carried its traceparent',
        'the server span with its traceparent fits several processes of its pid: it has to name its host (host.name) and container (container.id)',
        'the server span with its traceparent is of another time'][unknown + 1] AS no_span,
    family, server_port, peer_ip, peer_port, fd, netns, bytes_in, bytes_out, model, link, end_by, outcome, connection_request, queue_depth,
    busy_threads, open_requests, own_service, namespace, pod, container
FROM met;
