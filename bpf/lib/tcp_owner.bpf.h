/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose socket is it: the last thread that connected, sent or received on it. A soft interrupt runs
 * in anybody's name, so it is only asked who `current` is where a thread must hold the socket's
 * lock: connect(), recvmsg(), and a send that starts the socket's timer, which the first after a
 * rest does and which costs nothing per packet. A thread that goes on with another's sending is
 * seen when all of it is acknowledged.
 */
#ifndef UNDERSPAN_TCP_OWNER_BPF_H
#define UNDERSPAN_TCP_OWNER_BPF_H

#include "tcp.bpf.h"
#include "events/tcp_loss.h"

#define PF_KTHREAD 0x00200000

struct tcp_socket {
	struct event_header owner; /* without times */
	__u64 connect_ns;
	__u32 open;	       /* a bit for each enum tcp_loss_kind that is under way */
	__u32 tlp_counted;     /* tlp_high_seq of the last tail-loss probe that was counted */
	__u32 retrans_counted; /* total_retrans, as far as it is in rows */
	__u8 owner_from;       /* enum tcp_loss_owner */
	__u8 window_lost;      /* our window is closed, and there was no room to remember it */
	__u8 pad[2];
};

/* Without preallocation: most hosts have few connections, some have very many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* struct sock * */
	__type(value, struct tcp_socket);
} tcp_loss_sockets SEC(".maps");

static const struct tcp_socket empty_tcp_socket;

/* NULL when the map is full: then nobody would see how the socket's intervals end. */
static __always_inline struct tcp_socket *tcp_socket_get(__u64 sock)
{
	struct tcp_socket *found = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);

	if (found)
		return found;
	bpf_map_update_elem(&tcp_loss_sockets, &sock, &empty_tcp_socket, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&tcp_loss_sockets, &sock);
	if (found)
		found->retrans_counted = BPF_CORE_READ((struct tcp_sock *)sock, total_retrans);
	return found;
}

/* Call only where the current thread holds the socket's lock. */
static __always_inline void tcp_used_by_current(struct tcp_socket *socket)
{
	struct task_struct *task;

	if (socket->owner.host_tid == current_tid())
		return;
	task = (struct task_struct *)bpf_get_current_task();
	/* kernel TLS and the like read on behalf of a thread that is not there */
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return;
	header_set_current(&socket->owner);
	socket->owner_from = TCP_LOSS_OWNER_USER;
}

/* The agent's first look at sockets older than itself: some process has this file open. */
static __always_inline void tcp_held_by(__u64 sock, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct event_header holder = {};
	struct tcp_socket *socket;

	header_set_task(&holder, leader);
	holder.tid = holder.host_tid = 0;
	/* its user may come in between: the shorter that takes the better */
	socket = tcp_socket_get(sock);
	if (!socket || socket->owner_from)
		return;
	socket->owner_from = TCP_LOSS_OWNER_FILE;
	socket->owner = holder;
}

#endif
