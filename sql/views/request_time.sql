-- Where did the time of each request go? One row per server span that started between `from` and `to`:
--   SELECT * FROM request_time(from = '2026-01-31 09:00:00', to = '2026-01-31 10:00:00') ORDER BY total_ms DESC
--
-- total = handoff + gc + handler + rest, in milliseconds, each moment counted once:
--   total_ms    what the caller's client span measured; without one, from the hand-off's start to the span's end
--   handoff_ms  the request's bytes were there and no worker thread was (collections not counted)
--   gc_ms       the process stood still for garbage collection, before, during or after the span;
--               gc_others_ms of it was none of this request's own doing: other threads or requests started it
--   handler_ms  the span without those collections
--   rest_ms     what is left: network, proxies, the accept queue, the time from pickup to the span's start
-- span_ms is what a trace viewer shows. client_wait_ms (connected, but nothing sent yet) is part of the rest.
--
-- A span finds its hand-off by thread and time: the last one that this thread picked up before the span started,
-- unless another span of the thread started in between. Threads are told apart by host, container, pid and tid:
-- see deploy/otel for the attributes. Only the caller's clock may differ from ours: its skew moves gc_ms a little.
CREATE VIEW IF NOT EXISTS request_time AS
WITH
    server AS
    (
        SELECT
            TraceId, SpanId, ParentSpanId, ServiceName, SpanName,
            if(ResourceAttributes['k8s.node.name'] != '',
                ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name']) AS host,
            if(ResourceAttributes['k8s.pod.uid'] != '',
                ResourceAttributes['k8s.pod.uid'], ResourceAttributes['container.id']) AS container,
            toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
                SpanAttributes['process.pid'], ResourceAttributes['process.pid'])) AS pid,
            toUInt32OrZero(SpanAttributes['thread.id']) AS tid,
            intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
            start_us + intDiv(Duration, 1000) AS end_us,
            lagInFrame(start_us) OVER
                (PARTITION BY host, container, pid, tid ORDER BY start_us
                 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS previous_us
        FROM otel_traces
        WHERE Timestamp >= {from:DateTime64(6, 'UTC')} AND Timestamp <= {to:DateTime64(6, 'UTC')}
            AND SpanKind IN ('Server', 'SPAN_KIND_SERVER') AND SpanAttributes['thread.id'] != ''
    ),
    client AS
    (
        SELECT
            TraceId, SpanId,
            intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
            intDiv(Duration, 1000) AS duration_us
        FROM otel_traces
        WHERE Timestamp >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND Timestamp <= {to:DateTime64(6, 'UTC')}
            AND SpanKind IN ('Client', 'SPAN_KIND_CLIENT')
    ),
    handoff AS
    (
        SELECT
            host, if(pod_uid != '', pod_uid, container_id) AS container, pid, tid,
            toUnixTimestamp64Micro(end_time) AS end_us,
            end_us - intDiv(handoff_ns, 1000) AS start_us,
            intDiv(client_wait_ns, 1000) AS client_wait_us,
            queue
        FROM ebpf_handoff
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE AND start_time <= {to:DateTime64(6, 'UTC')}
    ),
    gc AS
    (
        SELECT
            host, if(pod_uid != '', pod_uid, container_id) AS container, pid, tid,
            toUnixTimestamp64Micro(start_time) AS start_us,
            toUnixTimestamp64Micro(end_time) AS end_us
        FROM ebpf_gc_pause
        WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 10 MINUTE
            AND start_time <= {to:DateTime64(6, 'UTC')} + INTERVAL 10 MINUTE
    ),
    picked AS
    (
        SELECT
            s.TraceId AS TraceId, s.SpanId AS SpanId, s.ParentSpanId AS ParentSpanId,
            s.ServiceName AS ServiceName, s.SpanName AS SpanName,
            s.host AS host, s.container AS container, s.pid AS pid, s.tid AS tid,
            s.start_us AS start_us, s.end_us AS end_us,
            h.end_us > s.previous_us AS found,
            if(found, h.start_us, s.start_us) AS wait_us,
            if(found, h.end_us, s.start_us) AS pickup_us,
            if(found, h.queue, '') AS queue,
            if(found, h.client_wait_us, 0) AS client_wait_us
        FROM server AS s
        ASOF LEFT JOIN handoff AS h
            ON s.host = h.host AND s.container = h.container AND s.pid = h.pid AND s.tid = h.tid
            AND s.start_us >= h.end_us
    ),
    whole AS
    (
        SELECT
            p.* EXCEPT (ParentSpanId),
            if(c.duration_us > 0, least(c.start_us, p.wait_us), p.wait_us) AS begin_us,
            if(c.duration_us > 0, c.duration_us, p.end_us - p.wait_us) AS total_us,
            greatest(begin_us + total_us, p.end_us) AS done_us
        FROM picked AS p
        LEFT JOIN client AS c ON c.TraceId = p.TraceId AND c.SpanId = p.ParentSpanId
    ),
    parts AS
    (
        SELECT
            w.TraceId AS TraceId, w.SpanId AS SpanId, any(w.ServiceName) AS ServiceName, any(w.SpanName) AS SpanName,
            any(w.host) AS host, any(w.container) AS container, any(w.pid) AS pid, any(w.tid) AS tid,
            any(w.begin_us) AS begin_us, any(w.start_us) AS start_us, any(w.total_us) AS total_us,
            any(w.queue) AS queue, any(w.client_wait_us) AS client_wait_us,
            any(w.end_us - w.start_us) AS span_us,
            sum(greatest(0, least(g.end_us, w.done_us) - greatest(g.start_us, w.begin_us)) AS overlap_us) AS gc_us,
            sumIf(overlap_us, g.tid != w.tid OR g.start_us < w.pickup_us) AS gc_others_us,
            any(w.pickup_us - w.wait_us)
                - sum(greatest(0, least(g.end_us, w.pickup_us) - greatest(g.start_us, w.wait_us))) AS handoff_us,
            span_us
                - sum(greatest(0, least(g.end_us, w.end_us) - greatest(g.start_us, w.start_us))) AS handler_us
        FROM whole AS w
        LEFT JOIN gc AS g ON g.host = w.host AND g.container = w.container AND g.pid = w.pid
        GROUP BY w.TraceId, w.SpanId
    )
SELECT
    TraceId AS trace_id, SpanId AS span_id, ServiceName AS service, SpanName AS span_name,
    host, container, pid, tid,
    fromUnixTimestamp64Micro(begin_us, 'UTC') AS begin_time,
    fromUnixTimestamp64Micro(start_us, 'UTC') AS span_time,
    queue,
    total_us / 1000 AS total_ms,
    handoff_us / 1000 AS handoff_ms,
    gc_us / 1000 AS gc_ms,
    gc_others_us / 1000 AS gc_others_ms,
    handler_us / 1000 AS handler_ms,
    (total_us - handoff_us - gc_us - handler_us) / 1000 AS rest_ms,
    span_us / 1000 AS span_ms,
    client_wait_us / 1000 AS client_wait_ms
FROM parts;
