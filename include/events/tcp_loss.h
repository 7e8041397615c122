/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Lost time or packets of a TCP connection: bpf/tcp_loss.bpf.c -> src/trackers/tcp_loss.c. */
#ifndef UNDERSPAN_EVENTS_TCP_LOSS_H
#define UNDERSPAN_EVENTS_TCP_LOSS_H

#include "events/event.h"
#include "events/tcp.h"

/* ebpf_tcp_loss.kind; append only. sql/tables/ebpf_tcp_loss.sql defines each kind's interval */
#define TCP_LOSS_KINDS(X)                                                                          \
	X(RETRANSMIT, "retransmit")                                                                \
	X(RTO, "rto")                                                                              \
	X(LOSS_RECOVERY, "loss_recovery")                                                          \
	X(TLP, "tlp")                                                                              \
	X(SYN_RETRANSMIT, "syn_retransmit")                                                        \
	X(SYNACK_RETRANSMIT, "synack_retransmit")                                                  \
	X(ZERO_WINDOW_SENT, "zero_window_sent")                                                    \
	X(ZERO_WINDOW_RECEIVED, "zero_window_received")                                            \
	X(RST_SENT, "rst_sent")                                                                    \
	X(RST_RECEIVED, "rst_received")

/* The event that ended the interval. */
#define TCP_LOSS_ENDS(X)                                                                           \
	X(NONE, "")		/* no interval, or the end is unknown */                           \
	X(PROGRESS, "progress") /* an ACK, an open window, a finished handshake */                 \
	X(RTO, "rto")		/* the retransmission timer: a row of kind rto begins */           \
	X(TIMEOUT, "timeout")	/* the kernel gave up the connection */                            \
	X(RESET, "reset")	/* the peer reset the connection */                                \
	X(CLOSED, "closed")

/* How the owner (pid, tid) became known. */
#define TCP_LOSS_OWNERS(X)                                                                         \
	X(NONE, "")	/* unknown: pid 0 */                                                       \
	X(USER, "user") /* the last thread to connect, send or receive */                          \
	X(FILE, "file") /* older than the agent: a process with the open file; tid 0 */

enum tcp_loss_kind {
#define X(id, name) TCP_LOSS_##id,
	TCP_LOSS_KINDS(X)
#undef X
		TCP_LOSS_KIND_MAX
};

enum tcp_loss_end {
#define X(id, name) TCP_LOSS_END_##id,
	TCP_LOSS_ENDS(X)
#undef X
		TCP_LOSS_END_MAX
};

enum tcp_loss_owner {
#define X(id, name) TCP_LOSS_OWNER_##id,
	TCP_LOSS_OWNERS(X)
#undef X
		TCP_LOSS_OWNER_MAX
};

/* An open interval in the map tcp_loss_episodes, which user space walks. */
struct tcp_loss_key {
	__u64 sock; /* struct sock * as an id; with no_sock: network namespace << 16 | port */
	__u32 kind;
	__u32 no_sock;
};

/* The header's thread is the socket's owner. */
struct tcp_loss_event {
	struct event_header header;
	struct tcp_connection connection; /* at the start of the interval */
	__u64 stalled_ns;		  /* of the interval: without the pauses between stalls */
	__u32 stalls;			  /* merged into the row */
	__u32 segments;			  /* retransmitted, or resets */
	__u32 timeouts;			  /* of the retransmission timer */
	__u32 probes;			  /* tail-loss or window probes */
	__u32 lost_out;
	__u32 snd_wnd; /* the peer's window */
	__u32 rcv_wnd; /* local window */
	__u8 kind;     /* enum tcp_loss_kind */
	__u8 ended_by; /* enum tcp_loss_end */
	__u8 owner;    /* enum tcp_loss_owner */
	__u8 pad[1];
};

#endif
