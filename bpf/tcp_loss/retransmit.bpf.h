/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Retransmissions by kind: of SYNs and SYN-ACKs, at a timer, in recovery, as probes. */
#ifndef UNDERSPAN_TCP_LOSS_RETRANSMIT_BPF_H
#define UNDERSPAN_TCP_LOSS_RETRANSMIT_BPF_H

#include "tcp_loss/progress.bpf.h"

static __always_inline void on_syn_retransmit(__u64 sock, __u32 segments, __u64 now)
{
	struct tcp_socket *socket = tcp_socket_get(sock);
	__u64 start = socket && socket->connect_ns ? socket->connect_ns : now;
	struct episode *episode = episode_begin(sock, TCP_LOSS_SYN_RETRANSMIT, start, now);

	if (!episode) {
		count_no_room(segments);
		return;
	}
	episode->event.segments += segments;
	episode->event.timeouts += segments; /* one timeout per segment */
}

static __always_inline void on_rto(struct tcp_socket *socket, __u64 sock, __u32 segments, __u64 now)
{
	__u64 start = last_progress_ns(sock, now);
	struct episode *episode;

	/* earlier attempts have failed */
	if (is_open(socket, TCP_LOSS_TLP))
		episode_end_kind(sock, TCP_LOSS_TLP, now, TCP_LOSS_END_RTO);
	if (is_open(socket, TCP_LOSS_RETRANSMIT))
		episode_end_kind(sock, TCP_LOSS_RETRANSMIT, now, TCP_LOSS_END_RTO);
	if (is_open(socket, TCP_LOSS_LOSS_RECOVERY))
		episode_end_kind(sock, TCP_LOSS_LOSS_RECOVERY, start, TCP_LOSS_END_RTO);
	episode = episode_begin(sock, TCP_LOSS_RTO, start, now);
	if (!episode) {
		count_no_room(segments);
		return;
	}
	episode->event.segments += segments;
	/* with a closed peer window the segment is a probe, also in the kernel's counters */
	if (BPF_CORE_READ(tcp_of(sock), snd_wnd))
		episode->event.timeouts += segments; /* one timeout per segment */
}

static __always_inline void on_tlp(struct tcp_socket *socket, __u64 sock, __u32 segments, __u64 now)
{
	struct episode *episode = episode_begin(sock, TCP_LOSS_TLP, last_progress_ns(sock, now),
						now);

	if (!episode) {
		count_no_room(segments ? segments : 1);
		return;
	}
	episode->event.segments += segments;
	episode->event.probes++;
}

/* Returns `segments` plus the retransmissions without a tracepoint, see add_uncounted(). */
static __always_inline __u32 count_retransmit(__u64 sock, __u32 segments)
{
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	__u32 total = BPF_CORE_READ(tcp_of(sock), total_retrans);
	__s32 missed = 0;

	if (socket) {
		missed = total - socket->retrans_counted - segments;
		socket->retrans_counted = total;
	}
	return missed > 0 ? segments + missed : segments;
}

static __noinline int on_retransmit(__u64 sock, __u32 segments, __u64 now)
{
	__u32 state = BPF_CORE_READ((struct sock *)sock, __sk_common.skc_state);
	struct tcp_socket *socket;
	__u32 ca_state = ca_state_of(sock), pending = pending_of(sock);
	__u32 kind = TCP_LOSS_RETRANSMIT;
	struct episode *episode;

	segments = count_retransmit(sock, segments);
	socket = tcp_socket_get(sock);
	if (state == TCP_STATE_SYN_SENT) {
		on_syn_retransmit(sock, segments, now);
		return 0;
	}
	episodes_check(socket, sock, now, ca_state);
	if (ca_state == CA_LOSS && pending == PENDING_NONE) {
		on_rto(socket, sock, segments, now);
		return 0;
	}
	if (ca_state < CA_RECOVERY && pending == PENDING_LOSS_PROBE) {
		on_tlp(socket, sock, segments, now);
		if (socket) /* the next value of tlp_high_seq */
			socket->tlp_counted = BPF_CORE_READ(tcp_of(sock), snd_nxt);
		return 0;
	}
	if (ca_state == CA_LOSS)
		kind = TCP_LOSS_LOSS_RECOVERY;
	episode = episode_begin(sock, kind, now, now);
	if (episode)
		episode->event.segments += segments;
	else
		count_no_room(segments);
	return 0;
}

/* A segment is retransmitted: in a timer, or in the processing of an ACK. */
SEC("raw_tp/tcp_retransmit_skb")
int BPF_PROG(tcp_loss_retransmit, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);

	on_retransmit((__u64)sk, BPF_CORE_READ(cb, tcp_gso_segs), bpf_ktime_get_ns());
	return 0;
}

/*
 * A SYN-ACK is retransmitted, in a timer. `sk` is the listener; with TCP Fast Open the connection,
 * whose counter includes the SYN-ACKs. SYN floods hit this hook: the SYN-ACKs of a listener are
 * summed.
 */
SEC("raw_tp/tcp_retransmit_synack")
int BPF_PROG(tcp_loss_retransmit_synack, struct sock *sk, struct request_sock *request)
{
	__u64 now = bpf_ktime_get_ns(), sock = (__u64)sk;
	__u64 start = BPF_CORE_READ((struct tcp_request_sock *)request, snt_synack) * 1000;
	struct episode *episode = episode_begin(sock, TCP_LOSS_SYNACK_RETRANSMIT, now, now);

	count_retransmit(sock, 1);
	if (!episode) {
		count_no_room(1);
		return 0;
	}
	if (!episode->event.segments)
		tcp_read_addresses(&episode->event.connection, (struct sock *)request);
	if (start && start < episode->event.header.start_ns)
		episode->event.header.start_ns = start;
	episode->event.segments++;
	return 0;
}

#endif
