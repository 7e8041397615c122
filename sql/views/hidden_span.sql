-- The request ledger as spans in the form of otel_traces, for trace viewers on ClickHouse: each request with a trace id is a
-- span beside the server's span (same parent), with a child span per part. A viewer that reads a single table uses
--   SELECT * FROM otel_traces WHERE TraceId = ... UNION ALL SELECT * FROM hidden_span WHERE TraceId = ...
-- through a view over both (deploy/README.md). Waits before the handler have real times. Parts of the thread are shares of time:
-- these spans follow each other in the order of the columns, with underspan.order = share.
CREATE VIEW IF NOT EXISTS hidden_span AS
WITH
    [
        ('accept_queue', 'waiting in the accept queue', accept_queue_ns), ('client_wait', 'waiting for the client to send', client_wait_ns),
        ('queue', 'waiting to be read', queue_ns), ('pool_wait', 'waiting for a thread of the pool', toNullable(pool_wait_ns)),
        ('cpu', 'on a CPU', toNullable(cpu_ns)), ('runq', 'waiting for a CPU', toNullable(runq_ns)),
        ('throttled', 'stopped by a CPU quota', toNullable(throttled_ns)), ('gil', 'waiting for the GIL', gil_ns),
        ('gc_own', 'own garbage collections', gc_own_ns), ('gc_sibling', 'garbage collections of other threads', gc_sibling_ns),
        ('lock', 'waiting for a lock', toNullable(lock_ns)), ('net', 'waiting for the network', toNullable(net_ns)),
        ('disk', 'waiting for a disk', toNullable(disk_ns)), ('fault', 'page faults', toNullable(fault_ns)),
        ('sleep', 'asleep', toNullable(sleep_ns)), ('pipe', 'waiting for a pipe', toNullable(pipe_ns)),
        ('child', 'waiting for a child process', toNullable(child_ns)), ('other', 'off the CPU otherwise', toNullable(other_ns)),
        ('await', 'awaiting', toNullable(await_ns)), ('loop_busy', 'event loop busy with several requests', toNullable(loop_busy_ns)),
        ('client_slow', 'waiting for the client to take the answer', toNullable(client_slow_ns))
    ] AS parts,
    arrayFilter(p -> ifNull(p.3, 0) > 0, parts) AS took,
    arrayMap(p -> assumeNotNull(p.3), took) AS took_ns,
    arrayMap((sum, ns) -> toUInt64(sum - ns), arrayCumSum(took_ns), took_ns) AS at_ns,
    leftPad(lower(hex(request_id)), 16, '0') AS request_span,
    -- first the request as a whole
    arrayConcat([('', concat('request ', toString(method), ' ', path), toUInt64(0), duration_ns)],
        arrayMap((p, begin, ns) -> (p.1, p.2, begin, ns), took, at_ns, took_ns)) AS spans
SELECT
    fromUnixTimestamp64Nano(toUnixTimestamp64Micro(start_time) * 1000 + toInt64(s.3), 'UTC') AS Timestamp,
    trace_id AS TraceId,
    if(s.1 = '', request_span, leftPad(lower(hex(cityHash64(request_id, s.1))), 16, '0')) AS SpanId,
    if(s.1 = '', parent_span_id, request_span) AS ParentSpanId,
    '' AS TraceState,
    s.2 AS SpanName,
    'Internal' AS SpanKind,
    'underspan' AS ServiceName,
    map('host.name', toString(host), 'container.id', toString(container_id), 'k8s.pod.uid', toString(pod_uid), 'process.pid', toString(pid)) AS ResourceAttributes,
    'underspan' AS ScopeName,
    '' AS ScopeVersion,
    map('underspan.request_id', toString(request_id), 'underspan.part', s.1,
        'underspan.order', multiIf(s.1 IN ('', 'accept_queue', 'client_wait', 'queue', 'pool_wait'), 'time', 'share'),
        'underspan.weight', toString(weight), 'underspan.not_measured', arrayStringConcat(not_measured, ' '),
        'thread.id', toString(tid), 'thread.name', toString(thread_name), 'http.response.status_code', ifNull(toString(status), '')) AS SpanAttributes,
    s.4 AS Duration,
    'Unset' AS StatusCode,
    '' AS StatusMessage,
    CAST([], 'Array(DateTime64(9))') AS `Events.Timestamp`, CAST([], 'Array(LowCardinality(String))') AS `Events.Name`,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Events.Attributes`,
    CAST([], 'Array(String)') AS `Links.TraceId`, CAST([], 'Array(String)') AS `Links.SpanId`, CAST([], 'Array(String)') AS `Links.TraceState`,
    CAST([], 'Array(Map(LowCardinality(String), String))') AS `Links.Attributes`
FROM ebpf_request
ARRAY JOIN spans AS s
WHERE trace_id != '';
