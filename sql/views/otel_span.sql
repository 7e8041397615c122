-- The spans, in one form whatever the form of their table: SpanAttributes and ResourceAttributes as maps or as JSON columns, the
-- table's name as `schema --apply --traces=DATABASE.TABLE` was told (src/clickhouse/traces.c rewrites both). The other views read
-- spans only from here. `time` is the table's own Timestamp, so that a condition on it reads only the days it has to.
-- process.pid is a span's or its resource's; thread.id has to be the native one. peer_port is the connection's as the server's
-- kernel sees it; client_port may be that of a client behind a proxy, and so proves something only where it is equal.
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
    start_us + intDiv(toInt64(Duration), 1000) AS end_us,
    if(ResourceAttributes['k8s.node.name'] != '',
        ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name']) AS host,
    ResourceAttributes['container.id'] AS container_id,
    ResourceAttributes['k8s.pod.uid'] AS pod_uid,
    toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
        SpanAttributes['process.pid'], ResourceAttributes['process.pid'])) AS pid,
    toUInt32OrZero(SpanAttributes['thread.id']) AS tid,
    SpanAttributes['boot_id'] AS boot_id,
    toUInt32OrZero(SpanAttributes['pidns']) AS pidns,
    -- what the span says of its process: the kernel and the PID namespace where it knows them (underspan-otel), else host and container
    if(boot_id != '' AND pidns != 0, cityHash64(boot_id, pidns, pid), cityHash64(host, container_id, pod_uid, pid)) AS said,
    toUInt16OrZero(multiIf(
        SpanAttributes['network.peer.port'] != '', SpanAttributes['network.peer.port'],
        SpanAttributes['net.sock.peer.port'] != '', SpanAttributes['net.sock.peer.port'],
        SpanAttributes['net.peer.port'])) AS peer_port,
    toUInt16OrZero(SpanAttributes['client.port']) AS client_port
FROM otel_traces;
