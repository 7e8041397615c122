/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads a TCP socket into struct tcp_connection, for the tcp_* trackers. */
#ifndef UNDERSPAN_TCP_BPF_H
#define UNDERSPAN_TCP_BPF_H

#include "lib/socket.bpf.h"
#include "events/tcp.h"

#define IPPROTO_TCP	6
#define IPPROTO_MPTCP	262
#define V4_MAPPED_WORD2 0xffff0000 /* third word of ::ffff:0:0 in memory order */

static __always_inline bool ip_is_v4_mapped(const __u32 words[4])
{
	return !words[0] && !words[1] && words[2] == V4_MAPPED_WORD2;
}

/*
 * The TCP socket behind a descriptor. An MPTCP socket has several: the first, which the connection
 * was made with.
 */
static __always_inline struct sock *fd_to_tcp_sock(__u32 fd)
{
	struct sock *sk = fd_to_sock(fd);

	if (sk && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_MPTCP &&
	    bpf_core_field_exists(struct mptcp_sock, first))
		sk = BPF_CORE_READ((struct mptcp_sock *)sk, first);
	return sk;
}

/* Addresses, ports and network namespace: valid from connect() or the handshake on. */
static __always_inline void tcp_read_addresses(struct tcp_connection *ret, struct sock *sk)
{
	__u32 local[4] = {}, remote[4] = {};

	ret->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	/* a socket on its way to CLOSE has released its port, but inet_sport remains */
	if (!ret->local_port)
		ret->local_port = __builtin_bswap16(
			BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	ret->remote_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	ret->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	ret->family = TCP_FAMILY_IPV4;
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6) {
		BPF_CORE_READ_INTO(&local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&remote, sk, __sk_common.skc_v6_daddr);
		/* a listener's remote address is ::, so a listener stays IPv6 */
		if (!ip_is_v4_mapped(remote) && !ip_is_v4_mapped(local)) {
			ret->family = TCP_FAMILY_IPV6;
			__builtin_memcpy(ret->local_ip, local, sizeof(local));
			__builtin_memcpy(ret->remote_ip, remote, sizeof(remote));
			return;
		}
	}
	ip_set_v4(ret->local_ip, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
	ip_set_v4(ret->remote_ip, BPF_CORE_READ(sk, __sk_common.skc_daddr));
}

static __always_inline __u32 tcp_srtt_us(struct sock *sk)
{
	return BPF_CORE_READ((struct tcp_sock *)sk, srtt_us) >> 3; /* kept in eighths */
}

/*
 * The members that change during a connection. `state` is an argument because tracepoints run
 * before the kernel sets the new state.
 */
static __always_inline void tcp_read_figures(struct tcp_connection *ret, struct sock *sk,
					     __u8 state)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;

	ret->srtt_us = tcp_srtt_us(sk);
	ret->snd_cwnd = BPF_CORE_READ(tcp, snd_cwnd);
	ret->total_retrans = BPF_CORE_READ(tcp, total_retrans);
	ret->state = state;
}

/* All of a zeroed struct tcp_connection, as the socket is now. */
static __always_inline void tcp_read(struct tcp_connection *ret, struct sock *sk)
{
	tcp_read_addresses(ret, sk);
	tcp_read_figures(ret, sk, BPF_CORE_READ(sk, __sk_common.skc_state));
}

#endif
