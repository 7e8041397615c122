-- Which processes a tracker could not watch, and why, by the last word of each process within a day, for `underspan requests`, `offcpu` and `gil`. host_pids
-- has no element where the tracker does not run on the host at all, and for what it sees there and has no rows of: the last word about each, as of connections in
-- TLS.
SELECT host, reason, arraySort(groupArrayIf(host_pid, host_pid != 0)) AS host_pids
FROM
(
    SELECT toString(ebpf_probe_health.host) AS host, host_pid, argMax(ebpf_probe_health.reason, time) AS reason,
        if(host_pid = 0 AND ebpf_probe_health.live AND ebpf_probe_health.reason != '', toString(ebpf_probe_health.binary), '') AS what
    FROM ebpf_probe_health
    WHERE tracker = {tracker:String} AND time > {from:DateTime64(6, 'UTC')} - INTERVAL 1 DAY AND time < {to:DateTime64(6, 'UTC')}
        AND ({host:String} = '' OR ebpf_probe_health.host = {host:String})
        AND (empty({pids:Array(UInt32)}) OR host_pid = 0 OR has({pids:Array(UInt32)}, host_pid))
    GROUP BY host, host_pid, what
)
WHERE reason != ''
GROUP BY host, reason
ORDER BY host, reason
LIMIT 100
