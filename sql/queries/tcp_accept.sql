-- Which listeners made clients wait in the last hour? Per listener and minute: time of connections in the accept queue (waits
-- longer than tcp_accept.min_duration_us), fill level of the queue, and overflows (the client then waits a second for the next
-- SYN). NULL: no connection waited in the minute.
WITH toUInt64(round(weight * 1000)) AS thousandths -- quantiles need integer weights
SELECT
    toStartOfMinute(start_time) AS minute, host,
    left(argMax(container_id, (start_time, host_tid)), 12) AS container, argMax(comm, (start_time, host_tid)) AS program,
    replaceOne(IPv6NumToString(listen_ip), '::ffff:', '') AS listen_address, local_port, netns,
    round(sumIf(weight, kind = 'accepted')) AS slow_accepts,
    round(quantileExactWeightedIfOrNull(0.5)(intDiv(duration_ns, 1000), thousandths, kind = 'accepted') / 1e3, 1) AS wait_p50_ms,
    round(maxIfOrNull(duration_ns, kind = 'accepted') / 1e6, 1) AS wait_max_ms,
    max(queue_len) AS longest_queue, max(queue_max) AS queue_limit,
    round(sum(overflows * weight)) AS overflowed, round(sum(drops * weight)) - overflowed AS dropped_otherwise,
    round(sumIf(weight, kind = 'never_accepted')) AS closed_in_queue
FROM ebpf_tcp_accept
WHERE start_time >= toStartOfMinute(now() - INTERVAL 1 HOUR)
GROUP BY minute, host, listen_ip, local_port, netns
ORDER BY minute, wait_max_ms DESC NULLS LAST, host, local_port, netns, listen_address;
