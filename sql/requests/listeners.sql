-- Were threads missing? Per listener of threads: arrivals (by second of arrival), the time a thread is held by a request, and the
-- threads seen to run requests, for `underspan requests`. service_ns: a request's time without its waits before the handler.
-- on_loops: requests of event loops, which share a thread; all other figures are without them. connections and thread_rows: in
-- minutes; a server that makes a thread per connection has one connection a thread. peak_arrivals: those of the busiest second.
-- Which requests: they ended in the window, of the host, the pids (of their namespace or the host's), the path's prefix; the lines
-- behind --service: apply where a service is asked for, those behind --spans: where the database also has spans. All files of this
-- folder choose alike.
SELECT
    host, container_id, netns, kind, server_port, comm,
    sum(w) AS requests,
    sum(w_loop) AS on_loops,
    sum(service_sum_ns) AS service_sum_ns,
    sum(waited_sum_ns) AS waited_sum_ns,
    max(minute_threads) AS threads,
    sum(minute_threads) AS thread_minutes,
    sum(minute_connections) AS connections,
    arrayMax(sumMap(seconds, arrivals).2) AS peak_arrivals,
    max(depth) AS max_queue_depth
FROM
(
    WITH
        model != 'loop' AS of_thread,
        toFloat64(weight) AS weighted,
        ifNull(accept_queue_ns, 0) + ifNull(queue_ns, 0) + pool_wait_ns AS waited_ns,
        toUnixTimestamp64Micro(start_time)
            + if(ifNull(client_wait_ns, 0) > 0, intDiv(ifNull(accept_queue_ns, 0) + ifNull(client_wait_ns, 0), 1000), 0) AS arrival_us
    SELECT
        toString(ebpf_request.host) AS host, toString(ebpf_request.container_id) AS container_id, netns, if(family = 'unix', 'unix', 'tcp') AS kind,
        server_port, toString(ebpf_request.comm) AS comm, toStartOfMinute(end_time) AS minute,
        sumIf(weighted, of_thread) AS w,
        sumIf(weighted, NOT of_thread) AS w_loop,
        sumIf((duration_ns - ifNull(client_wait_ns, 0) - waited_ns) * weighted, of_thread) AS service_sum_ns,
        sumIf(waited_ns * weighted, of_thread) AS waited_sum_ns,
        uniqExactIf((host_pid, tid), of_thread) AS minute_threads,
        greatest(uniqExactIf((host_pid, tid, peer_ip, peer_port, fd), of_thread), countIf(of_thread AND connection_request = 1)) AS minute_connections,
        sumMapIf([intDiv(arrival_us, 1000000)], [weighted], of_thread) AS by_second,
        by_second.1 AS seconds, by_second.2 AS arrivals,
        max(queue_depth) AS depth
    FROM ebpf_request
    WHERE ebpf_request.end_time >= {from:DateTime64(6, 'UTC')} AND ebpf_request.end_time < {to:DateTime64(6, 'UTC')}
        AND ebpf_request.start_time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND ebpf_request.start_time < {to:DateTime64(6, 'UTC')}
        AND ({host:String} = '' OR ebpf_request.host = {host:String})
        AND ({path:String} = '' OR startsWith(ebpf_request.path, {path:String}))
        AND (empty({pids:Array(UInt32)}) OR has({pids:Array(UInt32)}, ebpf_request.pid) OR has({pids:Array(UInt32)}, ebpf_request.host_pid))
        --service: AND (ebpf_request.service = {service:String}
        --spans:       OR (toString(ebpf_request.host), toString(ebpf_request.container_id), ebpf_request.pid) IN (SELECT host, container_id, pid FROM otel_span
        --spans:           WHERE service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
        --spans:       OR (toString(ebpf_request.boot_id), ebpf_request.pidns, ebpf_request.pid) IN (SELECT boot_id, pidns, pid FROM otel_span
        --spans:           WHERE boot_id != '' AND service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
        --spans:       OR (ebpf_request.trace_id, ebpf_request.parent_span_id) IN (SELECT trace_id, parent_id FROM otel_span
        --spans:           WHERE service = {service:String} AND kind = 'server' AND parent_id != ''
        --spans:               AND time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND time < {to:DateTime64(6, 'UTC')})
        --service: )
    GROUP BY host, container_id, netns, kind, server_port, comm, minute
)
GROUP BY host, container_id, netns, kind, server_port, comm
ORDER BY requests + on_loops DESC, host, container_id, server_port
LIMIT {top:UInt32}
