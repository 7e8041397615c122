-- Which peers cost time by lost packets or closed windows? Per program and peer in the last hour: what was sent again,
-- and for how long nothing moved: until a timer helped (rto, tlp), while connecting, or for a closed window, ours or theirs.
SELECT
    comm, remote_ip, if(local_port < remote_port AND local_port > 0, local_port, remote_port) AS service_port,
    sumIf(segments, kind IN ('retransmit', 'loss_recovery', 'rto', 'tlp')) AS retransmitted,
    countIf(kind = 'rto') AS rto_stalls,
    round(sumIf(stalled_ms, kind IN ('rto', 'tlp') AND ended_by != 'rto')) AS stalled_ms,
    round(maxIf(stalled_ms, kind IN ('rto', 'tlp'))) AS longest_stall_ms,
    round(sumIf(stalled_ms, kind = 'syn_retransmit')) AS connecting_ms,
    round(sumIf(stalled_ms, kind = 'zero_window_received')) AS peer_window_closed_ms,
    round(sumIf(stalled_ms, kind = 'zero_window_sent')) AS own_window_closed_ms,
    sumIf(segments, kind IN ('rst_sent', 'rst_received')) AS resets,
    any(srtt_us) AS some_srtt_us
FROM ebpf_tcp_loss
WHERE start_time >= now() - INTERVAL 1 HOUR
GROUP BY comm, remote_ip, service_port
ORDER BY stalled_ms + connecting_ms + peer_window_closed_ms + own_window_closed_ms DESC
LIMIT 30;
