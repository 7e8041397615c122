-- Costs of connecting, per program and destination, for connections begun in the last hour: handshakes, durations, failures by
-- cause, and churn: ended connections that lived less than a second (avoidable by keep-alive or a pool)? NULL: no handshake
-- succeeded, or no connection has ended.
WITH toUInt64(round(weight * 1000)) AS thousandths -- quantiles need integer weights
SELECT
    host, left(container_id, 12) AS container, comm, replaceOne(IPv6NumToString(remote_ip), '::ffff:', '') AS destination, remote_port,
    round(sumIf(weight, opened)) AS connects,
    round(sumIf(weight, opened AND outcome != 'success')) AS failed,
    arraySort(groupUniqArrayIf(outcome, opened AND outcome != 'success')) AS why,
    round(quantileExactWeightedIfOrNull(0.5)(intDiv(duration_ns, 1000), thousandths, opened AND outcome = 'success') / 1e3, 1) AS connect_p50_ms,
    round(quantileExactWeightedIfOrNull(0.99)(intDiv(duration_ns, 1000), thousandths, opened AND outcome = 'success') / 1e3, 1) AS connect_p99_ms,
    round(sumIf(retransmitted * weight, opened)) AS syns_again,
    round(sumIf(weight, NOT opened)) AS over,
    round(sumIf(weight, NOT opened AND duration_ns < 1e9)) AS lived_under_1s,
    round(quantileExactWeightedIfOrNull(0.5)(intDiv(duration_ns, 1000000), thousandths, NOT opened) / 1e3, 1) AS life_p50_s,
    round(sumIfOrNull(bytes * weight, NOT opened)) AS bytes
FROM
(
    SELECT
        1 AS opened, host, container_id, comm, remote_ip, remote_port, weight, duration_ns,
        toString(ebpf_tcp_connect.outcome) AS outcome, total_retrans AS retransmitted, 0 AS bytes
    FROM ebpf_tcp_connect
    WHERE start_time >= now() - INTERVAL 1 HOUR
    UNION ALL
    SELECT
        0, host, container_id, comm, remote_ip, remote_port, weight, duration_ns,
        '', 0, bytes_sent + bytes_received
    FROM ebpf_tcp_connect_closed
    WHERE start_time >= now() - INTERVAL 1 HOUR
)
GROUP BY host, container_id, comm, remote_ip, remote_port
ORDER BY failed DESC, connects DESC, host, container_id, comm, destination, remote_port
LIMIT 50;
