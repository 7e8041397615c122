-- Which server spans of the last {seconds} seconds can be joined with rows, and why not: a row per service and reason, for
-- `underspan doctor --spans`. A span joins if exactly one process has rows under all attributes of the span (boot id, PID
-- namespace and pid; without these host, container, pod, pid) and the span names the native thread, as the views require. Rows have
-- trace ids in lower case, and none of a time to come: spans with others are told. reason is empty for joined spans.
WITH
    now64(6, 'UTC') - toIntervalSecond({seconds:UInt64}) AS since,
    (SELECT arraySort(groupUniqArray(100)(toString(host))) FROM ebpf_agent WHERE start_time >= since - INTERVAL 1 HOUR AND end_time >= since) AS agents,
    span AS
    (
        SELECT service AS s_service, toString(host) AS s_host, toString(container_id) AS s_container, toString(pod_uid) AS s_pod, pid AS s_pid,
            said AS s_said, if(pidns = 0, '', toString(boot_id)) AS s_boot, tid != 0 AS has_tid, (boot_id = '') != (pidns = 0) AS s_half,
            trace_id != lower(trace_id) AS s_upper, time > now64(6, 'UTC') + INTERVAL 1 MINUTE AS s_ahead, count() AS n, min(trace_id) AS s_trace
        FROM
        (
            -- duplicates count once
            SELECT service, host, container_id, pod_uid, pid, tid, trace_id, said, boot_id, pidns, time FROM otel_span
            WHERE kind = 'server' AND time >= since
            LIMIT 1 BY sipHash128(trace_id, span_id)
        )
        GROUP BY s_service, s_host, s_container, s_pod, s_pid, s_said, s_boot, has_tid, s_half, s_upper, s_ahead
    ),
    -- services some of whose spans name the kernel
    (SELECT groupUniqArray(10000)(s_service) FROM span WHERE s_boot != '') AS named,
    process AS
    (
        SELECT DISTINCT toString(host) AS h, toString(container_id) AS c, toString(pod_uid) AS u, pid AS p, toString(boot_id) AS b, pidns AS ns
        FROM
        (
            SELECT host, container_id, pod_uid, pid, boot_id, pidns FROM ebpf_request_profile WHERE start_time >= since - INTERVAL 10 MINUTE
            UNION ALL
            SELECT host, container_id, pod_uid, pid, boot_id, pidns FROM ebpf_gc_pause WHERE start_time >= since - INTERVAL 10 MINUTE
            UNION ALL
            SELECT host, container_id, pod_uid, pid, boot_id, pidns FROM ebpf_off_cpu_profile
            WHERE start_time >= since - INTERVAL 10 MINUTE AND pid IN (SELECT pid FROM otel_span WHERE kind = 'server' AND time >= since)
        )
    ),
    -- processes under all identities that a span may have
    seen AS
    (
        SELECT
            arrayJoin(
#include "views/said.inc"
            ) AS said,
            uniqExact(h, c) AS matches
        FROM process
        GROUP BY said
    ),
    found AS
    (
        SELECT
            *, arrayFirst(a -> startsWith(s_host, concat(a, '.')) OR startsWith(a, concat(s_host, '.')), agents) AS other_name,
            multiIf(s_pid = 0, 'pid', NOT has_tid, 'thread', s_upper, 'upper', s_ahead, 'ahead', matches = 1, '', s_half, 'half',
                s_boot = '' AND s_service IN named, 'partly', matches > 1, 'several', empty(agents), 'agents', s_boot != '' AND NOT has((SELECT groupUniqArray(10000)(b) FROM process), s_boot), 'boot',
                s_boot != '', 'process', s_host != '' AND NOT has(agents, s_host), if(other_name != '', 'name', 'agent'),
                (s_host, s_pid) IN (SELECT h, p FROM process), 'container', 'process') AS kind
        FROM span
        LEFT ANY JOIN seen ON s_said = said
    )
SELECT
    s_service AS service,
    any(multiIf(
        kind = '', '',
        kind = 'pid', 'no process.pid on the span: install the wheel underspan-otel in the service (deploy/otel)',
        kind = 'thread', 'no native thread.id on the span (another one''s is Python''s own, which the kernel does not know): install the wheel underspan-otel in the service (deploy/otel)',
        kind = 'upper', 'the trace id is in upper case, rows and `traceparent` have lower case: explain does not find it, and no request joins by it: what writes the table has to write it in lower case, as the collector''s exporter does',
        kind = 'ahead', concat('the span begins in the future: the clock of its host', if(s_host = '', '', concat(' ', s_host)),
            ' is ahead of this database''s: set both by NTP'),
        kind = 'half', 'the span has only one of boot_id and pidns, and its other attributes do not name one process: a limit dropped the first attributes, raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT (or the collector keeps only one of both)',
        kind = 'partly', concat('no boot_id on the span, while other spans of the service have it, and its other attributes (host.name ', if(s_host = '', 'empty', s_host),
            ', container.id ', if(s_container = '', 'empty', left(s_container, 12)), ') do not name one process: on some hosts the service lacks the wheel underspan-otel, or one of its tracer providers lacks the processor (underspan_otel.install())'),
        kind = 'several', concat('pid ', toString(s_pid), if(s_host = '', ' is on several hosts or in several containers', concat(' is in several containers of host ', s_host)),
            ', and the span does not say in which: set ', if(s_host = '', 'host.name, ', ''), 'container.id or k8s.pod.uid (the collector''s k8sattributes processor)'),
        kind = 'agents', 'no agent has reported in this time: start underspan on the service''s hosts',
        kind = 'boot', concat('no rows of the span''s kernel (boot id ', left(s_boot, 8), '): no agent runs on its host',
            if(s_host = '', '', concat(' ', s_host)), ', or one older than these ids: start or upgrade it there'),
        kind = 'name', concat('the span''s host is ', s_host, ', its agent''s ', other_name, ': set host.name=', other_name,
            ' in OTEL_RESOURCE_ATTRIBUTES, or run the agent with --host=', s_host),
        kind = 'agent', concat('no agent of host ', s_host, ' has reported in this time (there are: ', arrayStringConcat(arraySlice(agents, 1, 4), ', '),
            if(length(agents) > 4, ', ...', ''), '): start one there, or set host.name to the name that its agent uses'),
        kind = 'container', concat('host ', s_host, ' has rows of pid ', toString(s_pid), ' in another container or pod than the span says (container.id ',
            if(s_container = '', 'empty', left(s_container, 12)), ', k8s.pod.uid ', if(s_pod = '', 'empty', s_pod), '): correct the resource''s attributes'),
        concat('no rows of pid ', toString(s_pid), if(s_host = '', if(s_boot = '', ' on any host; and the span names no host: set host.name',
            ' on its host: ask there `underspan doctor -p PID` why'), concat(' on host ', s_host, ': ask there `underspan doctor -p PID` why (sql/queries/unwatched.sql lists all); a process that has ended may have had none'))))) AS reason,
    sum(n) AS spans,
    min(s_trace) AS trace_id
FROM found
GROUP BY s_service, kind
ORDER BY service, kind != '', spans DESC, reason
