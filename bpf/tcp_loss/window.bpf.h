/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Closed windows of the peer and of the local socket, and further events seen only at the socket's
 * timers and reads: probes that are no retransmissions, and the user of the socket.
 */
#ifndef UNDERSPAN_TCP_LOSS_WINDOW_BPF_H
#define UNDERSPAN_TCP_LOSS_WINDOW_BPF_H

#include "lib/compat.bpf.h"
#include "tcp_loss/retransmit.bpf.h"

#define SHUTDOWN_MASK 3

/*
 * Addresses of the kernel's timer functions, learned from the first socket: /proc/kallsyms may be
 * restricted.
 */
__u64 write_timer_function, delack_timer_function;

static __always_inline void learn_timers(__u64 sock)
{
	struct timer_list *timer = (void *)(sock + tcp_write_timer_offset());

	if (write_timer_function)
		return;
	delack_timer_function = (__u64)BPF_CORE_READ((struct inet_connection_sock *)sock,
						     icsk_delack_timer.function);
	write_timer_function = (__u64)BPF_CORE_READ(timer, function);
}

/* ---- the socket's timers ---- */

/*
 * A tail-loss probe with new data is no retransmission. The only sign is tlp_high_seq, non-zero
 * until the peer acknowledges the data up to that sequence number.
 */
static __always_inline void check_for_tlp(struct tcp_socket *socket, __u64 sock, __u64 now)
{
	__u32 high = BPF_CORE_READ(tcp_of(sock), tlp_high_seq);

	if (!high || high == socket->tlp_counted)
		return;
	socket->tlp_counted = high;
	on_tlp(socket, sock, 0, now);
}

static __always_inline void on_window_probe(__u64 sock, __u64 now)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sock;
	struct episode *episode = episode_find(sock, TCP_LOSS_ZERO_WINDOW_RECEIVED);
	__u8 backoff = BPF_CORE_READ(icsk, icsk_backoff);

	/* the timer also covers local shortages: pacing, memory */
	if ((!episode || episode->pause_ns) && peer_window_closed(sock)) {
		episode = episode_begin(sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, now);
		if (!episode && !backoff) /* once for each closed window */
			count_no_room(1);
	}
	if (!episode)
		return;
	/* a probe increments the backoff up to a limit, then counts until answered */
	if (backoff > episode->backoff)
		episode->event.probes += backoff - episode->backoff;
	else if (backoff && BPF_CORE_READ(icsk, icsk_probes_out))
		episode->event.probes++;
	else
		return;
	episode->backoff = backoff;
	episode->last_ns = now;
}

/*
 * A close says nothing about the user: in an exiting process any thread may drop the last
 * reference.
 */
static __always_inline bool used_by_a_thread(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_lock.owned) &&
	       BPF_CORE_READ_BITFIELD_PROBED(sk, sk_shutdown) != SHUTDOWN_MASK;
}

static __noinline int on_write_timer_start(__u64 sock)
{
	struct tcp_socket *socket;
	__u32 pending = pending_of(sock);
	__u32 ports = BPF_CORE_READ((struct sock *)sock, __sk_common.skc_portpair);
	struct noted *noted = noted_slot(ports);
	__u64 now = 0;

	/* nearly all sends of nearly all connections: nothing is open, the user is known */
	if (!episodes_open && pending == PENDING_RETRANS &&
	    is_noted(noted, (struct sock *)sock, ports, NOTED_JIFFIES) &&
	    !BPF_CORE_READ(tcp_of(sock), tlp_high_seq))
		return 0;
	socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	if (socket && socket->open) {
		now = bpf_ktime_get_ns();
		episodes_check(socket, sock, now, ca_state_of(sock));
	}
	if (used_by_a_thread((struct sock *)sock)) {
		if (!socket)
			socket = tcp_socket_get(sock);
		if (socket)
			tcp_used_by_current(socket);
		note(noted, (struct sock *)sock, ports);
	}
	if (pending == PENDING_PROBE0)
		on_window_probe(sock, now ? now : bpf_ktime_get_ns());
	else if (socket && pending == PENDING_RETRANS)
		check_for_tlp(socket, sock, now ? now : bpf_ktime_get_ns());
	return 0;
}

/*
 * Every timer start of the kernel, in any context: a single comparison for timers of no TCP socket.
 */
SEC("tp_btf/timer_start")
int BPF_PROG(tcp_loss_timer_start, struct timer_list *timer)
{
	if ((__u64)timer->function == write_timer_function && write_timer_function)
		on_write_timer_start(pointer_as_number(timer) - tcp_write_timer_offset());
	return 0;
}

/* ---- the local window ---- */

/*
 * The time at which the local window closed. No tracepoint shows the ACK that closed the window: an
 * immediate or a delayed ACK of the last data that fitted. tcp_mstamp is precise until the peer's
 * first window probe, at least 200 ms later (TCP_RTO_MIN). Afterwards the arrival of the last data,
 * in jiffies, is the best estimate.
 */
static __always_inline __u64 window_closed_ns(__u64 sock, __u64 now, bool just_now)
{
	enum { FIRST_PROBE_NS = 200000000 };
	__u32 jiffies = BPF_CORE_READ((struct inet_connection_sock *)sock, icsk_ack.lrcvtime);
	__u64 data = jiffies_to_ns(jiffies, now);
	__u64 exact = BPF_CORE_READ(tcp_of(sock), tcp_mstamp) * 1000;

	if (just_now || exact < data + FIRST_PROBE_NS)
		return exact;
	return data + jiffy_ns < now ? data + jiffy_ns : now;
}

bool window_was_lost; /* a socket may have `window_lost` */

static __noinline int on_own_window_closed(__u64 sock, bool just_now)
{
	struct episode *episode = episode_find(sock, TCP_LOSS_ZERO_WINDOW_SENT);
	__u64 now = bpf_ktime_get_ns(), start;

	if (episode && !episode->pause_ns) {
		episode->last_ns = now;
		return 0;
	}
	start = window_closed_ns(sock, now, just_now);
	if (episode && start < episode->pause_ns)
		start = episode->pause_ns;
	if (!episode_begin(sock, TCP_LOSS_ZERO_WINDOW_SENT, start, now)) {
		struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

		if (!socket || !socket->window_lost)
			count_no_room(1);
		if (socket)
			socket->window_lost = window_was_lost = true;
	}
	return 0;
}

/*
 * A timer function has returned, in a soft interrupt. The socket may be gone: its memory remains a
 * socket (SLAB_TYPESAFE_BY_RCU), but only known or established sockets are read.
 */
SEC("tp_btf/timer_expire_exit")
int BPF_PROG(tcp_loss_timer_expired, struct timer_list *timer)
{
	__u64 function = (__u64)timer->function, sock;
	struct tcp_socket *socket;

	if (!function)
		return 0;
	if (function == write_timer_function) {
		sock = pointer_as_number(timer) - tcp_write_timer_offset();
		socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
		if (socket)
			check_for_tlp(socket, sock, bpf_ktime_get_ns());
	} else if (function == delack_timer_function) {
		sock = pointer_as_number(timer) -
		       bpf_core_field_offset(struct inet_connection_sock, icsk_delack_timer);
		/* delayed ACKs are sent here; a socket without a user has no entry */
		if (!BPF_CORE_READ(tcp_of(sock), rcv_wnd) &&
		    BPF_CORE_READ((struct sock *)sock, __sk_common.skc_state) ==
			    TCP_STATE_ESTABLISHED)
			on_own_window_closed(sock, true);
	}
	return 0;
}

static __noinline int on_read(__u64 sock, __u32 ports, bool closed)
{
	struct tcp_socket *socket = tcp_socket_get(sock);
	struct noted *noted = noted_slot(ports);
	bool just_now = is_noted(noted, (struct sock *)sock, ports, 0);

	note(noted, (struct sock *)sock, ports);
	if (!socket) { /* unknown as well: whether the closed window was counted */
		if (closed && !just_now)
			count_no_room(1);
		return 0;
	}
	tcp_used_by_current(socket);
	if (closed) {
		on_own_window_closed(sock, false);
		return 0;
	}
	socket->window_lost = false;
	episode_check_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, bpf_ktime_get_ns(), 0);
	return 0;
}

/*
 * A thread has copied data out of the socket, in its own context. A closed window is still closed:
 * it opens after the tracepoint.
 */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(tcp_loss_read, struct sock *sk)
{
	/* an open episode may have ended: looked at once a jiffy */
	__u32 jiffies_ago = episodes_open || window_was_lost ? 0 : NOTED_JIFFIES;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 ports = sk->__sk_common.skc_portpair;
	bool closed = tcp && !tcp->rcv_wnd;

	if (closed || !is_noted(noted_slot(ports), sk, ports, jiffies_ago))
		on_read((__u64)sk, ports, closed);
	return 0;
}

#endif
