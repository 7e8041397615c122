/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/*
 * Outbound connections, their outcome and end: bpf/tcp_connect.bpf.c -> src/trackers/tcp_connect.c.
 */
#ifndef UNDERSPAN_EVENTS_TCP_CONNECT_H
#define UNDERSPAN_EVENTS_TCP_CONNECT_H

#include "events/event.h"
#include "events/tcp.h"

enum tcp_connect_kind {
	TCP_CONNECT_OUTCOME, /* -> ebpf_tcp_connect; start..end: the handshake */
	TCP_CONNECT_CLOSED,  /* -> ebpf_tcp_connect_closed; start..end: the connection's life */
};

/* ebpf_tcp_connect.outcome; append only. BPF reports `failed`, user space derives the reason. */
#define TCP_CONNECT_OUTCOMES(X)                                                                    \
	X(failed)                                                                                  \
	X(success) X(aborted) X(refused) X(timeout) X(unreachable) X(reset) X(denied) X(no_port)

enum tcp_connect_outcome {
#define X(name) TCP_CONNECT_##name,
	TCP_CONNECT_OUTCOMES(X)
#undef X
		TCP_CONNECT_OUTCOME_MAX
};

/* ebpf_tcp_connect_closed.closed_by: the side that ended the connection first; append only */
enum tcp_closed_by {
	TCP_CLOSED_BY_UNKNOWN,
	TCP_CLOSED_BY_LOCAL,
	TCP_CLOSED_BY_REMOTE,
	TCP_CLOSED_BY_RESET,   /* by the peer, or by a device in between */
	TCP_CLOSED_BY_TIMEOUT, /* no answer any more */
	TCP_CLOSED_BY_MAX
};

/* The header's thread is the connecting thread. */
struct tcp_connect_event {
	struct event_header header;
	struct tcp_connection connection;
	__u64 bytes_sent; /* without retransmissions */
	__u64 bytes_received;
	__u16 error; /* errno */
	__u8 kind;   /* enum tcp_connect_kind */
	__u8 outcome;
	__u8 closed_by;
	__u8 pad[3];
};

#endif
