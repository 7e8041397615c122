/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Detects the end of an episode from the socket's state; called on every event of the socket and
 * every second.
 */
#ifndef UNDERSPAN_TCP_LOSS_PROGRESS_BPF_H
#define UNDERSPAN_TCP_LOSS_PROGRESS_BPF_H

#include "tcp_loss/episode.bpf.h"

/* enum tcp_ca_state; ICSK_TIME_* of include/net/inet_connection_sock.h */
enum { CA_RECOVERY = 3, CA_LOSS = 4 };
enum { PENDING_NONE = 0, PENDING_RETRANS = 1, PENDING_PROBE0 = 3, PENDING_LOSS_PROBE = 5 };

static __always_inline __u32 pending_of(__u64 sock)
{
	return BPF_CORE_READ((struct inet_connection_sock *)sock, icsk_pending);
}

static __always_inline __u32 ca_state_of(__u64 sock)
{
	return BPF_CORE_READ_BITFIELD_PROBED((struct inet_connection_sock *)sock, icsk_ca_state);
}

/* Has the peer acknowledged new data since the start of the stall? */
static __always_inline bool progressed(__u64 sock, struct episode *episode)
{
	struct tcp_sock *tcp = tcp_of(sock);

	return BPF_CORE_READ(tcp, snd_una) != episode->snd_una ||
	       BPF_CORE_READ(tcp, delivered) != episode->delivered;
}

static __always_inline bool peer_window_closed(__u64 sock)
{
	struct tcp_sock *tcp = tcp_of(sock);
	__u32 unsent = BPF_CORE_READ(tcp, write_seq) - BPF_CORE_READ(tcp, snd_nxt);
	__u32 mss = BPF_CORE_READ(tcp, mss_cache);

	return BPF_CORE_READ(tcp, snd_wnd) < (unsent < mss ? unsent : mss);
}

/*
 * Ends the episode when the socket has recovered. Called on every event of the socket and every
 * second.
 */
static __noinline int episode_check(struct tcp_loss_key *key, struct episode *episode, __u64 now,
				    __u32 ca_state)
{
	__u64 sock = key->sock;

	if (episode->pause_ns) { /* a new stall reports itself */
		if (now - episode->pause_ns > merge_ns)
			episode_end(key, episode, now, TCP_LOSS_END_PROGRESS);
		return 0;
	}
	switch (key->kind) {
	case TCP_LOSS_RETRANSMIT:
		if (ca_state != CA_RECOVERY)
			episode_pause(episode, ack_ns(sock, episode, now));
		break;
	case TCP_LOSS_RTO:
	case TCP_LOSS_TLP:
		if (progressed(sock, episode))
			episode_end(key, episode, ack_ns(sock, episode, now),
				    TCP_LOSS_END_PROGRESS);
		break;
	case TCP_LOSS_LOSS_RECOVERY:
		if (ca_state != CA_LOSS)
			episode_end(key, episode, ack_ns(sock, episode, now),
				    TCP_LOSS_END_PROGRESS);
		break;
	case TCP_LOSS_ZERO_WINDOW_SENT:
		/* the window opened before the last read returned */
		if (BPF_CORE_READ(tcp_of(sock), rcv_wnd))
			episode_pause(episode, episode->last_ns);
		break;
	case TCP_LOSS_ZERO_WINDOW_RECEIVED:
		if (pending_of(sock) != PENDING_PROBE0 && !peer_window_closed(sock))
			episode_pause(episode, ack_ns(sock, episode, now));
		break;
	}
	return 0;
}

static __always_inline void episode_check_kind(struct tcp_socket *socket, __u64 sock, __u32 kind,
					       __u64 now, __u32 ca_state)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode;

	if (!is_open(socket, kind))
		return;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (episode)
		episode_check(&key, episode, now, ca_state);
}

static __noinline int episodes_check(struct tcp_socket *socket, __u64 sock, __u64 now,
				     __u32 ca_state)
{
	if (!socket)
		return 0;
	episode_check_kind(socket, sock, TCP_LOSS_RETRANSMIT, now, ca_state);
	episode_check_kind(socket, sock, TCP_LOSS_RTO, now, ca_state);
	episode_check_kind(socket, sock, TCP_LOSS_LOSS_RECOVERY, now, ca_state);
	episode_check_kind(socket, sock, TCP_LOSS_TLP, now, ca_state);
	episode_check_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, now, ca_state);
	episode_check_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, ca_state);
	return 0;
}

#endif
