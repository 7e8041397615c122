-- Handshakes of a request's thread, and lost packets and closed windows of its connections, between two times, for `underspan
-- explain`. own: the connection that brought the request. outcome: of a handshake (kind connect). repeated: packets sent again;
-- stalled_us: time without progress. Handshakes in less than a millisecond and those of further clients are left out.
SELECT kind, outcome, own, replaceOne(toString(ip), '::ffff:', '') AS peer_ip, port AS peer_port, repeated, stalled_us, begin_us, end_us
FROM
(
    SELECT
        'connect' AS kind, toString(ebpf_tcp_connect.outcome) AS outcome, toUInt8(0) AS own, remote_ip AS ip, remote_port AS port,
        total_retrans AS repeated, intDiv(duration_ns, 1000) AS stalled_us,
#include "explain/event.inc"
    FROM ebpf_tcp_connect
    WHERE pid = {pid:UInt32} AND tid = {tid:UInt32}
        AND host = {host:String} AND container_id = {container_id:String}
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
        AND (duration_ns >= 1000000 OR ebpf_tcp_connect.outcome != 'success')
    UNION ALL
    SELECT
        toString(ebpf_tcp_loss.kind) AS kind, '' AS outcome,
        toUInt8(local_port = {server_port:UInt16} AND remote_port = {peer_port:UInt16} AND remote_ip = toIPv6OrDefault({peer_ip:String})) AS own,
        remote_ip AS ip, remote_port AS port, segments AS repeated, intDiv(stalled_ns, 1000) AS stalled_us,
#include "explain/event.inc"
    FROM ebpf_tcp_loss
    WHERE pid = {pid:UInt32} AND (own OR (tid = {tid:UInt32} AND local_port != {server_port:UInt16}))
        AND host = {host:String} AND container_id = {container_id:String}
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 MINUTE
        -- the first two are rows of a handshake; a reset takes no time
        AND ebpf_tcp_loss.kind NOT IN ('syn_retransmit', 'synack_retransmit', 'rst_sent', 'rst_received')
)
ORDER BY begin_us, end_us, kind
LIMIT 1000
