/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* The TCP connection in the events of all tcp_* trackers: filled by bpf/lib/tcp.bpf.h. */
#ifndef UNDERSPAN_EVENTS_TCP_H
#define UNDERSPAN_EVENTS_TCP_H

#include <linux/types.h>

/* Of the packets: a v4-mapped connection of an IPv6 socket is IPv4. */
enum tcp_family { TCP_FAMILY_UNKNOWN, TCP_FAMILY_IPV4, TCP_FAMILY_IPV6, TCP_FAMILY_MAX };

/* The kernel's state numbers (include/net/tcp_states.h), also shown by `ss`. */
#define TCP_STATES(X)                                                                              \
	X(ESTABLISHED)                                                                             \
	X(SYN_SENT)                                                                                \
	X(SYN_RECV)                                                                                \
	X(FIN_WAIT1)                                                                               \
	X(FIN_WAIT2)                                                                               \
	X(TIME_WAIT) X(CLOSE) X(CLOSE_WAIT) X(LAST_ACK) X(LISTEN) X(CLOSING) X(NEW_SYN_RECV)

enum tcp_state {
	TCP_STATE_NONE, /* nothing was read */
#define X(name) TCP_STATE_##name,
	TCP_STATES(X)
#undef X
		TCP_STATE_MAX
};

struct tcp_connection {
	__u8 local_ip[16]; /* IPv6, IPv4 as ::ffff:a.b.c.d */
	__u8 remote_ip[16];
	__u32 netns; /* inode number of the network namespace, as in `lsns -t net` */
	__u32 srtt_us;
	__u32 snd_cwnd;
	__u32 total_retrans;
	__u16 local_port; /* host byte order */
	__u16 remote_port;
	__u8 family; /* enum tcp_family */
	__u8 state;  /* enum tcp_state */
	__u8 pad[2];
};

#endif
