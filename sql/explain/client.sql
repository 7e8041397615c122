-- Which watched process is the client of a request, for `underspan explain`: the one that opened the connection in the hour before, by the
-- connection's addresses and ports. Of other hosts, whose containers may have equal addresses: one whose address is the cluster's or the
-- host's, and the only one. here: of the request's host. A connection that was closed before the request is another.
SELECT on_host AS host, of_service AS service, by_pid, on_host = {host:String} AS here
FROM
(
    SELECT
        host AS on_host, argMax(if(service = '', toString(comm), toString(service)), at_us) AS of_service, argMax(pid, at_us) AS by_pid,
        argMax(closed, at_us) AS is_closed, count() OVER () AS hosts
    FROM
    (
        SELECT toString(host) AS host, 0 AS closed, pid, comm, service, toUnixTimestamp64Micro(start_time) AS at_us
        FROM ebpf_tcp_connect
        WHERE local_ip = toIPv6OrDefault({peer_ip:String}) AND local_port = {peer_port:UInt16} AND remote_port = {server_port:UInt16}
            AND ebpf_tcp_connect.outcome = 'success'
            AND if(startsWith(toString(local_ip), '::ffff:127.') OR local_ip = toIPv6('::1'), host = {host:String} AND netns = {netns:UInt32},
                   host = {host:String} OR container_id = '' OR pod != '')
            AND start_time <= fromUnixTimestamp64Micro({from_us:Int64} + 1000, 'UTC')
            AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 HOUR
        UNION ALL
        SELECT toString(host), 1, pid, comm, service, toUnixTimestamp64Micro(end_time)
        FROM ebpf_tcp_connect_closed
        WHERE local_ip = toIPv6OrDefault({peer_ip:String}) AND local_port = {peer_port:UInt16} AND remote_port = {server_port:UInt16}
            AND end_time <= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND end_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 HOUR
    )
    GROUP BY on_host
)
WHERE is_closed = 0 AND (here OR hosts = 1)
ORDER BY here DESC, host
LIMIT 1
