/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The owner of a socket: the last thread that connected, sent or received. A soft interrupt runs on
 * any thread, so `current` counts only where a thread must hold the socket's lock: connect(),
 * recvmsg(), and a send that arms the socket's timer. The first send after an idle period arms the
 * timer, so the check costs nothing per packet. A thread that continues the sending of a different
 * thread is seen after all data is acknowledged.
 */
#ifndef UNDERSPAN_TCP_LOSS_OWNER_BPF_H
#define UNDERSPAN_TCP_LOSS_OWNER_BPF_H

#include "lib/identity.bpf.h"
#include "lib/task.bpf.h"
#include "lib/tcp.bpf.h"
#include "events/tcp_loss.h"

struct tcp_socket {
	struct event_header owner; /* without times */
	__u64 connect_ns;
	__u32 open;	       /* bit mask of open enum tcp_loss_kind */
	__u32 tlp_counted;     /* tlp_high_seq of the last counted tail-loss probe */
	__u32 retrans_counted; /* the part of total_retrans that rows account for */
	__u8 owner_from;       /* enum tcp_loss_owner */
	__u8 window_lost;      /* the local window is closed, but its episode found no room */
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

/* NULL: the map is full, so the end of an episode would not be seen. */
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
	/* kernel TLS and similar kernel threads read on behalf of an unknown thread */
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return;
	header_set_known(&socket->owner, bpf_ktime_get_ns());
	socket->owner_from = TCP_LOSS_OWNER_USER;
}

/*
 * Connections whose user this CPU has noted lately, so that a send or a read mostly costs a
 * comparison. The ports tell a connection from a former one at the same address.
 */
enum { NOTED_SLOTS = 1024, NOTED_JIFFIES = 8 };

struct noted {
	const struct sock *sock; /* only a name here */
	__u32 ports, tid, jiffies;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NOTED_SLOTS);
	__type(key, __u32);
	__type(value, struct noted);
} tcp_loss_noted SEC(".maps");

static __always_inline struct noted *noted_slot(__u32 ports)
{
	__u32 slot = ports * 2654435761U >> 22; /* multiplicative hash, 10 bits */

	return bpf_map_lookup_elem(&tcp_loss_noted, &slot);
}

static __always_inline bool is_noted(const struct noted *noted, const struct sock *sock,
				     __u32 ports, __u32 jiffies_ago)
{
	return noted && noted->sock == sock && noted->ports == ports &&
	       noted->tid == current_tid() &&
	       (__u32)bpf_jiffies64() - noted->jiffies <= jiffies_ago;
}

static __always_inline void note(struct noted *noted, const struct sock *sock, __u32 ports)
{
	if (noted)
		*noted = (struct noted){ .sock = sock,
					 .ports = ports,
					 .tid = current_tid(),
					 .jiffies = bpf_jiffies64() };
}

/* Called by the first scan, for sockets older than the agent: `task` has the file open. */
static __always_inline void tcp_held_by(__u64 sock, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct event_header holder = {};
	struct tcp_socket *socket;

	header_set_task(&holder, leader);
	holder.tid = holder.host_tid = 0;
	/* the user may come in between: keep the window short */
	socket = tcp_socket_get(sock);
	if (!socket || socket->owner_from)
		return;
	socket->owner_from = TCP_LOSS_OWNER_FILE;
	socket->owner = holder;
}

#endif
