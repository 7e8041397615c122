-- The hand-off that brought a server span's request to its thread, for `underspan explain`: the
-- last one that the thread picked up before the span started, unless another server span of the
-- thread started in between (then that one used it up).
WITH
    fromUnixTimestamp64Micro({start_us:Int64}, 'UTC') AS span_start,
    (
        SELECT max(toUnixTimestamp64Micro(Timestamp))
        FROM otel_traces
        WHERE Timestamp < span_start AND Timestamp > span_start - INTERVAL 10 MINUTE
            AND SpanKind IN ('Server', 'SPAN_KIND_SERVER')
            AND SpanAttributes['thread.id'] = toString({tid:UInt32})
            AND {pid:UInt32} = toUInt32OrZero(if(SpanAttributes['process.pid'] != '',
                SpanAttributes['process.pid'], ResourceAttributes['process.pid']))
            AND {host:String} = if(ResourceAttributes['k8s.node.name'] != '',
                ResourceAttributes['k8s.node.name'], ResourceAttributes['host.name'])
            AND {container:String} = if(ResourceAttributes['k8s.pod.uid'] != '',
                ResourceAttributes['k8s.pod.uid'], ResourceAttributes['container.id'])
    ) AS previous_us
SELECT
    queue,
    pickup,
    tid,
    thread_name,
    comm,
    -- in which call: the innermost function that is known, its file by its last two names
    replaceRegexpOne(arrayFirst(f -> f NOT IN ('<gone>', '<unread>', '<cut>'), py_stack),
        '\\(.*?([^/]*/[^/]*)\\)$', '(\\1)') AS place,
    toUnixTimestamp64Micro(start_time) AS begin_us,
    toUnixTimestamp64Micro(end_time) AS end_us,
    intDiv(handoff_ns, 1000) AS handoff_us,
    intDiv(client_wait_ns, 1000) AS client_wait_us
FROM ebpf_handoff
WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
    AND ({host:String} = '' OR host = {host:String})
    AND ({container:String} = '' OR {container:String} IN (pod_uid, container_id))
    AND end_time <= span_start AND end_time > span_start - INTERVAL 10 MINUTE
    AND toUnixTimestamp64Micro(end_time) > previous_us
ORDER BY end_time DESC
LIMIT 1
