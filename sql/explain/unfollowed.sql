-- What the request ledger of each host has counted in the last day and not followed, so that it has no row, for `underspan explain`
-- of a trace without a request.
SELECT toString(host) AS host, argMax(toString(reason), time) AS words
FROM ebpf_probe_health
WHERE tracker = 'request' AND host_pid = 0 AND live = 1 AND time > now64(6) - INTERVAL 1 DAY
    AND binary IN ('TLS', 'HTTP/2', 'others', 'pipelined', 'bodies', 'unseen reads', 'unread')
GROUP BY host, binary
ORDER BY host, binary
LIMIT 4
