// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Lost packets and lost time of TCP: retransmissions by kind, stalls until the retransmission timer
 * helped, closed windows on either side, and resets; reported as intervals with the socket's owner.
 * No hook runs per packet: retransmissions and resets have tracepoints, closed windows are seen at
 * the socket's timers and reads.
 *
 * This file has the life of a socket. In tcp_loss/: the kinds in retransmit, window and
 * reset.bpf.h, the intervals in episode.bpf.h, their ends in progress.bpf.h, the owner in
 * owner.bpf.h.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "tcp_loss/progress.bpf.h"
#include "tcp_loss/reset.bpf.h"
#include "tcp_loss/retransmit.bpf.h"
#include "tcp_loss/window.bpf.h"
#include "events/tcp_loss.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOCK_STREAM  1
#define EPIPE	     32
#define ECONNRESET   104
#define ECONNREFUSED 111

/* Raw sockets and further families share the protocol numbers. */
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
	/* the last timeout sends nothing, but counts */
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
	/* a timer function clears icsk_pending before acting */
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
	episodes_check(socket, sock, now, ca_state_of(sock));
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

/* In the connecting, listening or closing thread, or in a soft interrupt for packets and timers. */
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

/*
 * Congestion state changes, in the context of the ACK: ends episodes at the precise time. Without
 * the tracepoint the socket's next timer ends them.
 */
SEC("?raw_tp/tcp_cong_state_set")
int BPF_PROG(tcp_loss_cong_state, struct sock *sk, __u8 ca_state)
{
	__u64 sock = (__u64)sk;
	struct tcp_socket *socket = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (socket && socket->open)
		episodes_check(socket, sock, bpf_ktime_get_ns(), ca_state);
	return 0;
}

/* Counts retransmissions without a row, see add_uncounted(). */
static __always_inline void count_lost(struct tcp_socket *socket, __u64 sock)
{
	__s32 missing = BPF_CORE_READ(tcp_of(sock), total_retrans) - socket->retrans_counted;

	if (missing > 0) {
		stat_add(STAT_SEEN, missing);
		stat_add(STAT_LOST_STATE, missing);
	}
}

/* A TCP socket is freed: in a thread's context or in a soft interrupt. */
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
		/* the reset sent by close() may still have opened the local window */
		close_kind(socket, sock, TCP_LOSS_ZERO_WINDOW_SENT, now, why_closed(sock));
		episode_end_kind(sock, TCP_LOSS_SYNACK_RETRANSMIT, now, TCP_LOSS_END_CLOSED);
	}
	count_lost(socket, sock);
	bpf_map_delete_elem(&tcp_loss_sockets, &sock);
	return 0;
}

/* Run by user space once, after attaching all programs, for each open file: finds older sockets. */
SEC("iter/task_file")
int tcp_loss_old_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock *sk;

	if (!task || !file || !file_is_socket(file))
		return 0;
	sk = file_sock(file);
	if (!sk || !is_tcp(sk))
		return 0;
	learn_timers((__u64)sk);
	tcp_held_by((__u64)sk, task);
	return 0;
}

/*
 * Run by user space every second for each open episode: `sock`, `kind` and `no_sock` form the key.
 * The program does not hold the socket's lock, so recently used sockets are skipped.
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
	/* with packets in flight an ACK or a timer will end the episode, under the socket's lock */
	if (kind <= TCP_LOSS_TLP && BPF_CORE_READ(tcp_of(sock), packets_out))
		return 0;
	if (now > episode->last_ns + merge_ns)
		episode_check(&key, episode, now, ca_state_of(sock));
	return 0;
}
