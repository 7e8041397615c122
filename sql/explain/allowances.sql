-- Allowances of the EC2 instance that were exceeded between two times, for `underspan explain`: packets queued or dropped by the network.
SELECT toString(interface) AS name, allowance, sum(exceeding) AS packets
FROM
(
    SELECT
        interface,
        arrayJoin([('bw_in', bw_in_allowance_exceeded), ('bw_out', bw_out_allowance_exceeded), ('pps', pps_allowance_exceeded),
            ('conntrack', conntrack_allowance_exceeded), ('linklocal', linklocal_allowance_exceeded)]) AS exceeded,
        exceeded.1 AS allowance, exceeded.2 AS exceeding
    FROM ebpf_ena
    WHERE host = {host:String}
        AND start_time <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND end_time >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND start_time > fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') - INTERVAL 1 MINUTE
)
WHERE exceeding > 0
GROUP BY name, allowance
ORDER BY packets DESC, name, allowance
