-- Threads of a process that serve requests, and how busy further requests kept these threads between two times, for `underspan explain`.
-- busy_share: of the time of all these threads. all_busy: each thread had further requests for half of the time or longer; where short
-- requests are sampled, a thread's share is unknown, and the condition is three quarters of the time of all. NULL: no time to measure.
-- on_loop: the given thread is an event loop. The first requests on an idle loop may have model 'thread'; further requests of the
-- thread show the loop. A handler that runs a loop of its own for a while (asyncio.run()) does not: requests after it are of a thread,
-- unless the thread has had several requests at once (of tornado, requests on new connections have model 'thread').
-- per_connection: the server makes a thread for each connection, and no request waits for a thread: of three threads or more, none had
-- a second connection; where requests without a row are possible (weight), of a hundred threads. threads is then the number of those that
-- had not ended, and the shares are NULL.
WITH {to_us:Int64} - {from_us:Int64} AS window_us
SELECT
    count() >= if(max(is_thinned), 100, 3) AND max(connections) <= 1 AND max(is_loop) = 0 AS per_connection,
    if(per_connection, countIf(ended >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')), count()) AS threads,
    max(is_loop) AS on_loop,
    if(window_us > 0 AND NOT per_connection, sum(held_us) / (threads * window_us), NULL) AS busy_share,
    if(isNull(busy_share), NULL, if(max(is_sampled), busy_share >= 0.75, min(held_us) >= window_us / 2)) AS all_busy
FROM
(
    SELECT tid, max(loop) AS is_loop, max(sampled) AS is_sampled, sum(held) AS held_us, max(opened) AS connections, max(thinned) AS is_thinned, max(end_time) AS ended
    FROM
    (
        -- all threads of these minutes
        SELECT tid,
            tid = {tid:UInt32} AND countIf(model = 'loop') > 0
                AND (maxIf(start_time, model = 'thread') < minIf(start_time, model = 'loop')
                    OR maxIf(open_requests, model != 'pool') > 1 OR countIf(model = 'thread') * 10 <= countIf(model = 'loop')) AS loop, min(start_time) AS began, max(end_time) AS end_time,
            greatest(uniqExact((peer_ip, peer_port, fd)), countIf(connection_request = 1)) AS opened, max(weight) > 1 AS thinned, 0 AS sampled, toFloat64(0) AS held
        FROM ebpf_request
        WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
            AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC') + INTERVAL 10 MINUTE
        GROUP BY tid
        UNION ALL
        -- and their requests between the two times: only of these are the further columns read
        SELECT tid, 0, start_time, start_time, 0, 0, weight > 1 AND overlap_us > 0,
            if(toString(request_id) != {request_id:String} AND overlap_us > 0, weight * overlap_us, 0)
        FROM
        (
            SELECT tid, weight, request_id, start_time,
#include "views/handled_us.inc"
                AS taken_us,
                least(toUnixTimestamp64Micro(end_time), {to_us:Int64}) - greatest(taken_us, {from_us:Int64}) AS overlap_us
            FROM ebpf_request
            WHERE pid = {pid:UInt32} AND host = {host:String} AND container_id = {container_id:String}
                AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
                AND start_time < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
                AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        )
    )
    GROUP BY tid
    HAVING min(began) <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
)
