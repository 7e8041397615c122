-- Which peers cost time by lost packets or closed windows? Per program and peer in the last hour: retransmissions, and the time
-- without progress: until a timer (rto, tlp), while connecting, or for a closed window at either end.
-- NULL: no connection with the peer stalled, or none had a round-trip time.
WITH
    -- an unsuccessful tail-loss probe continues as a stall of the retransmission timer
    kind IN ('rto', 'tlp') AND ended_by != 'rto' AS is_stall,
    toUInt64(round(weight * 1000)) AS thousandths -- quantiles need integer weights
SELECT
    host, left(container_id, 12) AS container, comm, replaceOne(IPv6NumToString(remote_ip), '::ffff:', '') AS peer,
    if(local_port < remote_port AND local_port > 0, local_port, remote_port) AS service_port,
    round(sumIf(segments * weight, kind IN ('retransmit', 'loss_recovery', 'rto', 'tlp'))) AS sent_again,
    round(sumIf(weight, kind = 'rto')) AS rto_stalls,
    round(sumIf(stalled_ns * weight, is_stall) / 1e6) AS stall_ms,
    round(maxIfOrNull(stalled_ns, kind IN ('rto', 'tlp')) / 1e6) AS longest_stall_ms,
    round(sumIf(stalled_ns * weight, kind = 'syn_retransmit') / 1e6) AS connecting_ms,
    round(sumIf(stalled_ns * weight, kind = 'zero_window_received') / 1e6) AS peer_window_closed_ms,
    round(sumIf(stalled_ns * weight, kind = 'zero_window_sent') / 1e6) AS own_window_closed_ms,
    round(sumIf(segments * weight, kind IN ('rst_sent', 'rst_received'))) AS resets,
    quantileExactWeightedIfOrNull(0.5)(srtt_us, thousandths, srtt_us > 0) AS srtt_p50_us
FROM ebpf_tcp_loss
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY host, container_id, comm, remote_ip, service_port
ORDER BY stall_ms + connecting_ms + peer_window_closed_ms + own_window_closed_ms DESC, host, container_id, comm, peer, service_port
LIMIT 30;
