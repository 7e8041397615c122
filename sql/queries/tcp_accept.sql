-- Which listeners made their clients wait in the last hour? Per listener and minute: how long connections sat in its
-- accept queue, how full that was, and what overflowed (the client then waits a second for its next SYN).
SELECT
    toStartOfMinute(start_time) AS minute, host, any(comm) AS program,
    IPv6NumToString(listen_ip) AS listen_address, local_port, netns,
    countIf(kind = 'accepted') AS slow_accepts,
    round(quantileIf(0.5)(duration_ms, kind = 'accepted'), 1) AS wait_p50_ms,
    round(maxIf(duration_ms, kind = 'accepted'), 1) AS wait_max_ms,
    max(queue_len) AS longest_queue, max(queue_max) AS queue_limit,
    sum(overflows) AS overflowed, sum(drops) - overflowed AS dropped_otherwise,
    countIf(kind = 'never_accepted') AS closed_in_queue
FROM ebpf_tcp_accept
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY minute, host, listen_ip, local_port, netns
ORDER BY minute, wait_max_ms DESC;
