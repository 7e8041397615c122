-- What did connecting cost in the last hour, per program and destination: how many handshakes, how slow, which failed and
-- why, and how much of it was churn: connections that lived less than a second (keep-alive or a pool would save them)?
SELECT
    host, comm, IPv6NumToString(remote_ip) AS destination, remote_port,
    sum(attempts) AS connects, sum(failures) AS failed, arrayDistinct(arrayFlatten(groupArray(reasons))) AS why,
    round(max(p50), 1) AS connect_p50_ms, round(max(p99), 1) AS connect_p99_ms, sum(syn_retransmits) AS syns_again,
    sum(short) AS lived_under_1s, round(max(median_life), 1) AS life_p50_s, sum(bytes) AS bytes
FROM
(
    SELECT
        host, comm, remote_ip, remote_port,
        count() AS attempts, countIf(outcome != 'success') AS failures,
        groupUniqArrayIf(outcome, outcome != 'success') AS reasons,
        quantileIf(0.5)(duration_ms, outcome = 'success') AS p50,
        quantileIf(0.99)(duration_ms, outcome = 'success') AS p99,
        sum(total_retrans) AS syn_retransmits, 0 AS short, 0. AS median_life, 0 AS bytes
    FROM ebpf_tcp_connect
    WHERE start_time >= now() - INTERVAL 1 HOUR
    GROUP BY host, comm, remote_ip, remote_port
    UNION ALL
    SELECT
        host, comm, remote_ip, remote_port,
        0, 0, [], 0., 0., 0, countIf(duration_ns < 1e9), quantile(0.5)(duration_ms) / 1e3,
        sum(bytes_sent + bytes_received)
    FROM ebpf_tcp_connect_closed
    WHERE end_time >= now() - INTERVAL 1 HOUR
    GROUP BY host, comm, remote_ip, remote_port
)
GROUP BY host, comm, remote_ip, remote_port
ORDER BY failed DESC, connects DESC
LIMIT 50;
