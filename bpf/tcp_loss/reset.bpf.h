/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Resets: received, sent, and sent for no socket at all. */
#ifndef UNDERSPAN_TCP_LOSS_RESET_BPF_H
#define UNDERSPAN_TCP_LOSS_RESET_BPF_H

#include "tcp_loss/episode.bpf.h"

/* A reset arrives for a socket: in a soft interrupt, or in a thread that processes the backlog. */
SEC("raw_tp/tcp_receive_reset")
int BPF_PROG(tcp_loss_rst_received, struct sock *sk)
{
	__u64 sock = (__u64)sk, now = bpf_ktime_get_ns();
	struct episode *episode = episode_begin(sock, TCP_LOSS_RST_RECEIVED, now, now);

	if (!episode) {
		count_no_room(1);
		return 0;
	}
	episode->event.segments++;
	episode_end_kind(sock, TCP_LOSS_RST_RECEIVED, now, TCP_LOSS_END_NONE);
	return 0;
}

/* Reads the addresses of a received packet: the local address is the destination. */
static __always_inline void read_packet_addresses(struct tcp_connection *ret, struct sk_buff *skb)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *ip = head + BPF_CORE_READ(skb, network_header);
	__be16 ports[2] = {};
	__be32 v4[2] = {};
	__u8 version = 0;

	bpf_probe_read_kernel(ports, sizeof(ports), head + BPF_CORE_READ(skb, transport_header));
	ret->remote_port = __builtin_bswap16(ports[0]);
	ret->local_port = __builtin_bswap16(ports[1]);
	bpf_probe_read_kernel(&version, sizeof(version), ip);
	if (version >> 4 == 6) {
		ret->family = TCP_FAMILY_IPV6;
		bpf_probe_read_kernel(ret->remote_ip, sizeof(ret->remote_ip), ip + 8);
		bpf_probe_read_kernel(ret->local_ip, sizeof(ret->local_ip), ip + 24);
	} else {
		ret->family = TCP_FAMILY_IPV4;
		bpf_probe_read_kernel(v4, sizeof(v4), ip + 12);
		ip_set_v4(ret->remote_ip, v4[0]);
		ip_set_v4(ret->local_ip, v4[1]);
	}
	ret->netns = BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
}

/* A reset in answer to a packet without a socket. A scan causes many: summed per local port. */
static __noinline int on_rst_without_socket(struct sk_buff *skb, __u64 now)
{
	struct tcp_loss_key key = { .kind = TCP_LOSS_RST_SENT, .no_sock = 1 };
	struct tcp_connection connection = {};
	struct episode *episode;

	read_packet_addresses(&connection, skb);
	key.sock = (__u64)connection.netns << 16 | connection.local_port;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (!episode) {
		bpf_map_update_elem(&tcp_loss_episodes, &key, &empty_episode, BPF_NOEXIST);
		episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
		if (!episode) {
			count_no_room(1);
			return 0;
		}
		episode->event.connection = connection;
		episode->event.kind = TCP_LOSS_RST_SENT;
		episode->event.stalls = 1;
		episode->stall_ns = now;
		episode->event.header.start_ns = now;
	}
	episode->last_ns = now;
	__sync_fetch_and_add(&episode->event.segments, 1);
	return 0;
}

/*
 * A reset is sent, in any context. `skb`: the answered packet, NULL when a thread closed or
 * aborted. `sk` may be NULL since 6.10.
 */
SEC("raw_tp/tcp_send_reset")
int BPF_PROG(tcp_loss_rst_sent, struct sock *sk, struct sk_buff *skb)
{
	__u64 sock = (__u64)sk, now = bpf_ktime_get_ns();
	struct episode *episode;
	__u32 state = sk ? BPF_CORE_READ(sk, __sk_common.skc_state) : TCP_STATE_NONE;

	if (state == TCP_STATE_NONE || state == TCP_STATE_LISTEN || state == TCP_STATE_TIME_WAIT ||
	    state == TCP_STATE_NEW_SYN_RECV) {
		if (skb)
			on_rst_without_socket(skb, now);
		return 0;
	}
	episode = episode_begin(sock, TCP_LOSS_RST_SENT, now, now);
	if (!episode) {
		count_no_room(1);
		return 0;
	}
	episode->event.segments++;
	episode_end_kind(sock, TCP_LOSS_RST_SENT, now, TCP_LOSS_END_NONE);
	return 0;
}

#endif
