-- Requests that a request's connections brought to servers with rows of their own, between two times, for `underspan explain`: a line
-- per server, with the longest request. A connection is known by its address and port. It is the request's own if the request's thread
-- opened it in that time; if it was open before, and is one of few, the request is the only one of its process to which it can belong, and
-- the thread waited until the answer came, or the only one of its trace. Of other hosts, whose containers may have equal addresses: an
-- address that is the cluster's or the host's, and the request of one host only. ms: within the two times. parts: the largest, in ms.
WITH
    (
        SELECT groupArray((
#include "views/handled_us.inc"
            , toUnixTimestamp64Micro(end_time), tid, trace_id, toString(request_id)))
        FROM ebpf_request
        WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    ) AS handled,
    toString(arrayFirst(o -> o.5 = {request_id:String}, handled).4) AS own_trace,
    -- more than a thousand are not searched: no kept connection is then the request's alone
    arrayFilter(o -> o.5 != {request_id:String}, handled) AS all_others,
    if(length(all_others) > 1000, [(toInt64(0), {to_us:Int64}, {tid:UInt32}, own_trace, '')], all_others) AS others,
    (
        -- until the wake-up
        SELECT groupArray((toUnixTimestamp64Micro(start_time), toUnixTimestamp64Micro(end_time) - intDiv(runq_ns, 1000)))
        FROM ebpf_off_cpu
        WHERE pid = {pid:UInt32} AND tid = {tid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
    ) AS all_waits,
    if(length(all_waits) > 1000, [], all_waits) AS waits,
    connections AS
    (
        SELECT
            local_ip, local_port, remote_port, from_netns,
            maxIf(begin_us, NOT closed) AS connected_us, maxIf(to_us, closed) AS closed_us,
            max(NOT closed AND by_tid = {tid:UInt32} AND begin_us >= {from_us:Int64} - 1000) AS opened,
            -- of a client that opens one for each request, other processes soon have the ports
            count() OVER (PARTITION BY any(remote_ip), remote_port) <= 200 AS pooled,
            startsWith(toString(local_ip), '::ffff:127.') OR local_ip = toIPv6('::1') AS loopback,
            max(is_routed) AS routed
        FROM
        (
            SELECT 0 AS closed, local_ip, local_port, remote_ip, remote_port, netns AS from_netns, tid AS by_tid,
                toUnixTimestamp64Micro(start_time) AS begin_us, toUnixTimestamp64Micro(end_time) AS to_us, container_id = '' OR pod != '' AS is_routed
            FROM ebpf_tcp_connect
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String} AND ebpf_tcp_connect.outcome = 'success'
                AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 HOUR
            UNION ALL
            SELECT 1, local_ip, local_port, remote_ip, remote_port, netns, tid,
                toUnixTimestamp64Micro(start_time), toUnixTimestamp64Micro(end_time), 0
            FROM ebpf_tcp_connect_closed
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                AND end_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 HOUR
        )
        GROUP BY local_ip, local_port, remote_port, from_netns
        HAVING connected_us > 0
    ),
    answered AS
    (
        SELECT
            toString(r.host) AS on_host, toString(if(r.service = '', r.comm, r.service)) AS of_service, r.server_port AS port,
            toString(r.request_id) AS id, toString(r.method) AS verb, r.path AS target, toFloat64(r.weight) AS times,
            toUnixTimestamp64Micro(r.start_time) AS first_us, toUnixTimestamp64Micro(r.end_time) AS last_us,
            r.host = {host:String} AS here,
            uniqExact(r.host) OVER (PARTITION BY r.peer_ip, r.peer_port) AS hosts,
            -- in the order of the names below
            arrayMap(ns -> ifNull(ns, 0) / 1e6 * times,
                [r.accept_queue_ns, r.client_wait_ns, r.queue_ns, toNullable(r.pool_wait_ns), toNullable(r.cpu_ns), toNullable(r.runq_ns),
                toNullable(r.throttled_ns), r.gil_ns, r.gc_own_ns, r.gc_sibling_ns, toNullable(r.lock_ns), toNullable(r.net_ns),
                toNullable(r.disk_ns), toNullable(r.fault_ns), toNullable(r.sleep_ns), toNullable(r.pipe_ns), toNullable(r.child_ns),
                toNullable(r.other_ns), toNullable(r.await_ns), toNullable(r.loop_busy_ns), toNullable(r.client_slow_ns)]) AS took
        FROM ebpf_request AS r
        INNER JOIN connections AS c ON r.peer_ip = c.local_ip AND r.peer_port = c.local_port
        WHERE r.start_time >= fromUnixTimestamp64Micro({from_us:Int64} - 1000, 'UTC')
            AND r.start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            AND toString(r.request_id) != {request_id:String}
            -- a container's port may be another one outside
            AND if(c.loopback, r.host = {host:String} AND r.netns = c.from_netns AND r.server_port = c.remote_port,
                   if(r.server_port = c.remote_port, r.host = {host:String} OR c.routed, r.host = {host:String} AND r.container_id != ''))
            AND multiIf(
                c.opened AND first_us >= c.connected_us - 1000, NOT arrayExists(o -> o.3 = {tid:UInt32} AND first_us BETWEEN o.1 AND o.2, others),
                NOT c.pooled OR c.closed_us BETWEEN c.connected_us AND first_us, 0,
                own_trace != '' AND r.trace_id = own_trace, NOT arrayExists(o -> o.4 = own_trace AND first_us BETWEEN o.1 AND o.2, others),
                NOT arrayExists(o -> first_us BETWEEN o.1 AND o.2, others)
                    AND arrayExists(w -> w.2 BETWEEN last_us - 1000 AND last_us + 20000
                        AND (w.1 BETWEEN first_us - 5000 AND first_us + 5000 OR (last_us - first_us) * 2 >= {to_us:Int64} - {from_us:Int64}), waits))
    )
SELECT
    on_host AS host, of_service AS service, port AS server_port,
    sum(times) AS requests, sum((least(last_us, {to_us:Int64}) - greatest(first_us, {from_us:Int64})) / 1000 * times) AS ms,
    argMax(id, last_us - first_us) AS request_id, argMax(verb, last_us - first_us) AS method, argMax(target, last_us - first_us) AS path,
    argMax(first_us, last_us - first_us) AS begin_us, argMax(last_us, last_us - first_us) AS end_us,
    arraySlice(arrayReverseSort(p -> p.2, arrayFilter(p -> p.2 >= arraySum(sumForEach(took)) / 10, arrayZip(
        ['accept_queue', 'client_wait', 'queue', 'pool_wait', 'cpu', 'runq', 'throttled', 'gil', 'gc_own', 'gc_sibling', 'lock', 'net', 'disk',
         'fault', 'sleep', 'pipe', 'child', 'other', 'await', 'loop_busy', 'client_slow'], sumForEach(took)))), 1, 3) AS parts
FROM answered
WHERE here OR hosts = 1
GROUP BY host, service, server_port
ORDER BY ms DESC, host, service, server_port
LIMIT 20
