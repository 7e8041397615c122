-- Where TCP connections lost packets and time. pid, tid: the last thread that used the socket (owner = 'user'), or a
-- process that had it open when the agent started (owner = 'file', tid 0), or nobody known (owner = '', pid 0).
-- start_time and end_time, by kind:
--   retransmit            fast (SACK, RACK) recovery: first retransmission .. the ACK that ended the recovery
--   rto                   nothing moved until the retransmission timer helped: the last ACK of something new (or the
--                         first send after a rest) .. the next one
--   loss_recovery         what else was sent again after such a stall: first retransmission .. the ACK that ended it
--   tlp                   tail-loss probe: as rto; segments 0: it carried new data
--   syn_retransmit        connect(): the first SYN .. connected or given up
--   synack_retransmit     of a listener, up to a second of them: the first SYN-ACK was sent .. the last was sent again;
--                         the remote address is the first one's
--   zero_window_sent      our window was closed, for nobody here read: the ACK that closed it .. the read that opened it
--   zero_window_received  the peer's window was too small for what we had to send: nothing in flight .. it opened
--   rst_sent, rst_received  a moment. Answers to packets without a connection are summed up for each local port.
-- Recoveries (retransmit) and closed windows with less than tcp_loss.merge_ms between them are one row of up to a second
-- and what it takes to end: stalls counts them, stalled_ns is the time in them, duration_ns has the pauses in between too.
-- segments: retransmitted (or resets); timeouts: expiries of the retransmission timer; probes: tail-loss or window probes.
-- tcp_state, srtt_us, snd_cwnd, lost_out and the windows are as they were when the row began to be counted.
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
