-- Hosts whose agents reported in the window, for a message where the host asked for (`asked`: it is there, first) has none.
SELECT toString(ebpf_agent.host) AS name, toUInt8(name = {host:String}) AS asked
FROM ebpf_agent
WHERE start_time >= {from:DateTime64(6, 'UTC')} - INTERVAL 1 HOUR AND start_time < {to:DateTime64(6, 'UTC')}
    AND end_time > {from:DateTime64(6, 'UTC')}
    AND name != ''
GROUP BY name
ORDER BY asked DESC, name
LIMIT 10
