-- Spans in a common form, for maps or JSON columns in SpanAttributes and ResourceAttributes; the table's name is set by `schema
-- --apply --traces=DATABASE.TABLE` (src/clickhouse/traces.c rewrites both). All further views read spans only from here. `time`
-- is the table's own Timestamp, so that a condition reads only the matching days.
-- process.pid comes from the span or the resource; thread.id has to be the native thread id. peer_port is the connection's port
-- as seen by the server's kernel; client_port may belong to a client behind a proxy, so is evidence only if equal.
CREATE VIEW IF NOT EXISTS otel_span AS
SELECT
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_id,
    toString(ServiceName) AS service,
    toString(SpanName) AS span_name,
    multiIf(SpanKind IN ('Server', 'SPAN_KIND_SERVER'), 'server', SpanKind IN ('Client', 'SPAN_KIND_CLIENT'), 'client', '') AS kind,
    Timestamp AS time,
    intDiv(toUnixTimestamp64Nano(Timestamp), 1000) AS start_us,
    -- a clock that went back makes a length below zero, which fills up an unsigned number
    start_us + intDiv(greatest(0, toInt64(Duration)), 1000) AS end_us,
    if(ResourceAttributes['k8s.node.name'] != '',
        ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name']) AS host,
    ResourceAttributes['container.id'] AS container_id,
    ResourceAttributes['k8s.pod.uid'] AS pod_uid,
    toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
        SpanAttributes['process.pid'], ResourceAttributes['process.pid'])) AS pid,
    toUInt32OrZero(SpanAttributes['thread.id']) AS tid,
    SpanAttributes['boot_id'] AS boot_id,
    toUInt32OrZero(SpanAttributes['pidns']) AS pidns,
    -- the span's identity of the process: boot id and PID namespace if present (underspan-otel), otherwise host and container
    if(boot_id != '' AND pidns != 0, cityHash64(boot_id, pidns, pid), cityHash64(host, container_id, pod_uid, pid)) AS said,
    toUInt16OrZero(multiIf(
        SpanAttributes['network.peer.port'] != '', SpanAttributes['network.peer.port'],
        SpanAttributes['net.sock.peer.port'] != '', SpanAttributes['net.sock.peer.port'],
        SpanAttributes['net.peer.port'])) AS peer_port,
    toUInt16OrZero(SpanAttributes['client.port']) AS client_port
FROM otel_traces
-- the attributes are read once, not once per key: half the time
SETTINGS optimize_functions_to_subcolumns = 0;
