// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where TCP loses packets and time: retransmissions by kind, stalls until the retransmission timer
 * helped, windows that were closed on either side, resets; as intervals, with the socket's owner.
 * Nothing here runs per packet: retransmissions and resets have tracepoints of their own; closed
 * windows are seen at the socket's timers and where its receiver reads. Here is the life of a
 * socket; the kinds of intervals are in lib/tcp_retransmit, tcp_window and tcp_reset, the intervals
 * in lib/tcp_episode, how they end in lib/tcp_look, the owner in lib/tcp_owner.
 */
#include "underspan.bpf.h"
#include "tcp_look.bpf.h"
#include "tcp_reset.bpf.h"
#include "tcp_retransmit.bpf.h"
#include "tcp_window.bpf.h"
#include "events/tcp_loss.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOCK_STREAM  1
#define EPIPE	     32
#define ECONNRESET   104
#define ECONNREFUSED 111

/* Raw sockets and other families use the same protocol numbers. */
static __always_inline bool is_tcp(struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_type) == SOCK_STREAM &&
	       BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
}

static __always_inline void close_kind(struct tcp_socket *socket, __u64 sock, __u32 kind, __u64 now,
				       __u32 ended_by)
{
	struct tcp_loss_key key = episode_key(sock, kind);
	struct episode *episode;

	if (!is_open(socket, kind))
		return;
	episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	if (!episode)
		return;
	/* the last expiry of the timer sends nothing any more, but it is one */
	if (ended_by == TCP_LOSS_END_TIMEOUT &&
	    (kind == TCP_LOSS_RTO || kind == TCP_LOSS_SYN_RETRANSMIT))
		episode->event.timeouts++;
	episode_end(&key, episode, now, episode->pause_ns ? TCP_LOSS_END_PROGRESS : ended_by);
}

static __always_inline __u32 why_closed(__u64 sock)
{
	int error = BPF_CORE_READ((struct sock *)sock, sk_err);

	if (error == ECONNRESET || error == ECONNREFUSED || error == EPIPE)
		return TCP_LOSS_END_RESET;
	/* a timer function clears it before it acts */
	if (error && pending_of(sock) == PENDING_NONE)
		return TCP_LOSS_END_TIMEOUT;
	return TCP_LOSS_END_CLOSED;
}

static __noinline int on_close(struct tcp_socket *socket, __u64 sock)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 ended_by = why_closed(sock);

	if (!socket)
		return 0;
	look_at_all(socket, sock, now, ca_state_of(sock));
	close_kind(socket, sock, TCP_LOSS_RETRANSMIT, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_RTO, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_LOSS_RECOVERY, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_TLP, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_SYN_RETRANSMIT, now, ended_by);
	close_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_RECEIVED, now, ended_by);
	return 0;
}

static __always_inline void on_connect(__u64 sock)
{
	struct tcp_socket *socket = tcp_socket_get(sock);

	if (!socket)
		return;
	tcp_used_by_current(socket);
	socket->connect_ns = bpf_ktime_get_ns();
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(tcp_loss_set_state, struct sock *sk, int old_state, int new_state)
{
	__u64 sock = (__u64)sk;
	struct tcp_socket *socket;

	if (!is_tcp(sk))
		return 0;
	learn_timers(sock);
	if (new_state == TCP_STATE_SYN_SENT) {
		on_connect(sock);
		return 0;
	}
	if (new_state == TCP_STATE_LISTEN) {
		socket = tcp_socket_get(sock);
		if (socket)
			tcp_used_by_current(socket);
		return 0;
	}
	socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	if (!socket || !socket->open)
		return 0;
	if (old_state == TCP_STATE_SYN_SENT && new_state == TCP_STATE_ESTABLISHED)
		episode_end_kind(sock, TCP_LOSS_SYN_RETRANSMIT, bpf_ktime_get_ns(),
				 TCP_LOSS_END_PROGRESS);
	else if (new_state == TCP_STATE_CLOSE)
		on_close(socket, sock);
	return 0;
}

/* Ends what ends with an ACK at that ACK; without it, that is noticed at the socket's next timer.
 */
SEC("?raw_tp/tcp_cong_state_set")
int BPF_PROG(tcp_loss_cong_state, struct sock *sk, __u8 ca_state)
{
	__u64 sock = (__u64)sk;
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (socket && socket->open)
		look_at_all(socket, sock, bpf_ktime_get_ns(), ca_state);
	return 0;
}

/* Retransmissions that no row came to have: see add_uncounted(). */
static __always_inline void count_lost(struct tcp_socket *socket, __u64 sock)
{
	__s32 missing = BPF_CORE_READ(tcp_of(sock), total_retrans) - socket->retrans_counted;

	if (missing > 0) {
		stat_add(STAT_SEEN, missing);
		stat_add(STAT_LOST_STATE, missing);
	}
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(tcp_loss_destroy, struct sock *sk)
{
	__u64 sock = (__u64)sk, now;
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (!socket)
		return 0;
	if (socket->open) {
		now = bpf_ktime_get_ns();
		on_close(socket, sock);
		/* the reset that close() sends may still have opened our window */
		close_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, now, why_closed(sock));
		episode_end_kind(sock, TCP_LOSS_SYNACK_RETRANSMIT, now, TCP_LOSS_END_CLOSED);
	}
	count_lost(socket, sock);
	bpf_map_delete_elem(&tcp_loss_sockets, &sock);
	return 0;
}

/* Read once by user space, after everything is attached. */
SEC("iter/task_file")
int tcp_loss_old_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || !is_tcp(sk))
		return 0;
	learn_timers((__u64)sk);
	tcp_held_by((__u64)sk, task);
	return 0;
}

/*
 * User space runs it each second for each open episode: `sock`, `kind`, `no_sock` are its key. It
 * holds no lock of the socket, so it leaves alone what was touched a moment ago.
 */
SEC("raw_tp")
int BPF_PROG(tcp_loss_tick, __u64 sock, __u64 kind, __u64 no_sock)
{
	struct tcp_loss_key key = { .sock = sock, .kind = kind, .no_sock = no_sock };
	struct episode *episode = bpf_map_lookup_elem(&tcp_loss_episodes, &key);
	__u64 now = bpf_ktime_get_ns();

	if (!episode || !episode->event.header.start_ns)
		return 0;
	if (kind == TCP_LOSS_RST_SENT || kind == TCP_LOSS_SYNACK_RETRANSMIT) {
		if (now - episode->event.header.start_ns > EPISODE_MAX_NS)
			episode_end(&key, episode, episode->last_ns, TCP_LOSS_END_NONE);
		return 0;
	}
	/* with something in flight, an ACK or a timer will show it, under the socket's lock */
	if (kind <= TCP_LOSS_TLP && BPF_CORE_READ(tcp_of(sock), packets_out))
		return 0;
	if (now > episode->last_ns + merge_ns)
		look_at(&key, episode, now, ca_state_of(sock));
	return 0;
}
