-- Handshakes that the listener of a request's port dropped in the ten seconds before the request, for `underspan explain`: its client
-- may have tried in vain after 1, 3 and 7 s before.
SELECT sum(ebpf_tcp_accept.drops) AS drops, sum(ebpf_tcp_accept.overflows) AS overflows
FROM ebpf_tcp_accept
WHERE host = {host:String} AND netns = {netns:UInt32} AND local_port = {server_port:UInt16} AND kind = 'dropped'
    AND start_time <= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 10 SECOND
    AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
HAVING drops > 0
