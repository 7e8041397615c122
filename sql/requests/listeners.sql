-- Were threads missing? Per listener of threads: arrivals (by second of arrival), the time a thread is held by a request, and the
-- threads seen to run requests, for `underspan requests`. service_ns: a request's time without its waits before the handler.
-- on_loops: requests of event loops, which share a thread; all other figures are without them. connections and thread_rows: in
-- minutes; a server that makes a thread per connection has one connection a thread. peak_arrivals: those of the busiest second.
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
        toString(r.host) AS host, toString(r.container_id) AS container_id, netns, if(family = 'unix', 'unix', 'tcp') AS kind,
        server_port, toString(r.comm) AS comm, toStartOfMinute(end_time) AS minute,
        sumIf(weighted, of_thread) AS w,
        sumIf(weighted, NOT of_thread) AS w_loop,
        sumIf((duration_ns - ifNull(client_wait_ns, 0) - waited_ns) * weighted, of_thread) AS service_sum_ns,
        sumIf(waited_ns * weighted, of_thread) AS waited_sum_ns,
        uniqExactIf((host_pid, tid), of_thread) AS minute_threads,
        greatest(uniqExactIf((host_pid, tid, peer_ip, peer_port, fd), of_thread), countIf(of_thread AND connection_request = 1)) AS minute_connections,
        sumMapIf([intDiv(arrival_us, 1000000)], [weighted], of_thread) AS by_second,
        by_second.1 AS seconds, by_second.2 AS arrivals,
        max(queue_depth) AS depth
    FROM ebpf_request AS r
#include "requests/chosen.inc"
    GROUP BY host, container_id, netns, kind, server_port, comm, minute
)
GROUP BY host, container_id, netns, kind, server_port, comm
ORDER BY requests + on_loops DESC, host, container_id, server_port
LIMIT {top:UInt32}
