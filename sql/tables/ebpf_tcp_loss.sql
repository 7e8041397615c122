-- Packets and time lost by TCP connections. pid, tid: the last thread that used the socket (owner = 'user'), or a process that
-- had the socket open at the agent's start (owner = 'file', tid 0), or unknown (owner = '', pid 0).
-- start_time and end_time, by kind:
--   retransmit            fast (SACK, RACK) recovery: first retransmission .. the ACK that ended the recovery
--   rto                   no progress until the retransmission timer: the last ACK of new data (or the first send after a
--                         pause) .. the next ACK
--   loss_recovery         further retransmissions after such a stall: first retransmission .. the ACK that ended the recovery
--   tlp                   tail-loss probe: as rto; segments 0: with new data
--   syn_retransmit        connect(): the first SYN .. connected or given up
--   synack_retransmit     of a listener, up to a second: the first SYN-ACK was sent .. the last repetition; the remote address
--                         belongs to the first
--   zero_window_sent      our window was closed, because no thread here read: the ACK that closed .. the read that opened
--   zero_window_received  the peer's window was too small for our data: nothing in flight .. opened
--   rst_sent, rst_received  a point in time. Answers to packets without a connection are summed per local port.
-- Recoveries (retransmit) and closed windows less than tcp_loss.merge_ms apart are merged into a row of up to a second plus the
-- end of the last: stalls counts the parts, stalled_ns sums their time, duration_ns includes the pauses. segments: retransmitted
-- (or resets); timeouts: expiries of the retransmission timer; probes: tail-loss or window probes. tcp_state, srtt_us, snd_cwnd,
-- lost_out and the windows: values at the row's begin.
CREATE TABLE IF NOT EXISTS ebpf_tcp_loss
(
#include "tables/thread_columns.inc"
    kind LowCardinality(String),
    ended_by LowCardinality(String),
    owner LowCardinality(String),
#include "tables/tcp_columns.inc"
    stalled_ns UInt64 CODEC(ZSTD),
    stalls UInt32 CODEC(ZSTD),
    segments UInt32 CODEC(ZSTD),
    timeouts UInt32 CODEC(ZSTD),
    probes UInt32 CODEC(ZSTD),
    lost_out UInt32 CODEC(ZSTD),
    snd_wnd UInt32 CODEC(ZSTD),
    rcv_wnd UInt32 CODEC(ZSTD),
    duration_ms Float64 ALIAS duration_ns / 1e6,
    stalled_ms Float64 ALIAS stalled_ns / 1e6
)
#include "tables/thread_engine.inc"
