/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Events of a listener's accept queue: bpf/tcp_accept.bpf.c -> src/trackers/tcp_accept.c. */
#ifndef UNDERSPAN_EVENTS_TCP_ACCEPT_H
#define UNDERSPAN_EVENTS_TCP_ACCEPT_H

#include "events/event.h"
#include "events/tcp.h"

/* ebpf_tcp_accept.kind; append only */
enum tcp_accept_kind {
	TCP_ACCEPT_ACCEPTED,	   /* start..end: in the queue */
	TCP_ACCEPT_NEVER_ACCEPTED, /* start..end: in the queue, until the listener was closed */
	TCP_ACCEPT_DROPPED,	   /* start..end: when the listener dropped `drops` handshakes */
	TCP_ACCEPT_KIND_MAX,
	/* no row: tells user space of a listener, once */
	TCP_ACCEPT_LISTENING = TCP_ACCEPT_KIND_MAX,
};

/*
 * The header's thread is the accepting thread; for further kinds, the last accepting thread of the
 * listener, or the thread that called listen().
 */
struct tcp_accept_event {
	struct event_header header;
	struct tcp_connection connection; /* DROPPED: the listener's own */
	__u8 listen_ip[16];		  /* bound address of the listener */
	__u32 queue_len;		  /* at arrival, connection included; DROPPED: at the end */
	__u32 queue_max;		  /* the queue is full when queue_len exceeds queue_max */
	__u32 handshake_rtt_us;
	__u32 drops;
	__u8 kind; /* enum tcp_accept_kind */
	__u8 pad[7];
};

#endif
