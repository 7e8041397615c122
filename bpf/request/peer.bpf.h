/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The remote ends of the sockets that a thread sleeps on: with which did it wait for how long? */
#ifndef UNDERSPAN_REQUEST_PEER_BPF_H
#define UNDERSPAN_REQUEST_PEER_BPF_H

#include "lib/socket.bpf.h"
#include "request/state.bpf.h"
#include "request/unix_peer.bpf.h"
#include "sched/thread.bpf.h"

/* Waits shorter than this are not attributed to a peer. */
enum { REQUEST_PEER_NS = 20000 };

/*
 * The current thread falls asleep on the descriptor of a socket: is it that of the client of its
 * last request? Otherwise keeps the remote end. Here and not when the sleep has ended: the end may
 * be noticed late, when the thread has closed the socket. Global: explored by the verifier once.
 */
__noinline int request_sleeps_for_client(__u32 fd)
{
	struct thread *t = thread_find(current_task());
	struct sock *sk = fd_to_sock(fd);
	struct request_remote *remote;
	__u16 family;

	if (!t || !sk)
		return 0;
	if (t->request.open && (__u64)sk == t->request.read_key)
		return 1;
	remote = &t->request.remote;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family == AF_UNIX)
		request_sleeps_on_unix((__u64)sk);
	if (family != AF_INET && family != AF_INET6)
		return 0;
	__builtin_memset(remote->ip, 0, sizeof(remote->ip));
	if (family == AF_INET)
		ip_set_v4(remote->ip, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	else
		BPF_CORE_READ_INTO((struct in6_addr *)remote->ip, sk, __sk_common.skc_v6_daddr);
	remote->port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	remote->known = 1;
	return 0;
}

/*
 * The entry sums->peer_at. In memory, its number is any to the verifier, which explores what
 * follows once and not for each entry.
 */
static __always_inline struct request_peer *request_peer_at(struct request_sums *sums)
{
	return &sums->peers[*(volatile __u64 *)&sums->peer_at & (REQUEST_PEERS - 1)];
}

/*
 * With more peers than entries, the peer with the least time is evicted, and the new peer takes
 * over its time ("space saving"): a peer with many short waits gets an entry, and keeps it.
 */
static __always_inline void request_peer_add(struct request_sums *sums, const __u8 ip[16],
					     __u16 port, __u64 ns)
{
	struct request_peer *least;

	sums->has_peers = 1;
	sums->peer_at = 0;
	for (int i = 0; i < REQUEST_PEERS; i++) {
		struct request_peer *peer = &sums->peers[i];

		if (peer->port == port && !__builtin_memcmp(peer->ip, ip, sizeof(peer->ip))) {
			peer->ns += ns;
			return;
		}
		if (peer->ns < request_peer_at(sums)->ns)
			sums->peer_at = i;
	}
	least = request_peer_at(sums);
	__builtin_memcpy(least->ip, ip, sizeof(least->ip));
	least->port = port;
	least->others_ns = least->ns;
	least->ns += ns;
}

static __always_inline void request_peers_forget(struct request_sums *sums)
{
	if (!sums->has_peers)
		return;
	__builtin_memset(sums->peers, 0, sizeof(sums->peers));
	sums->has_peers = 0;
}

static __always_inline __u64 request_peer_ns(const struct request_peer *peer)
{
	return peer->ns - peer->others_ns;
}

/* The peer with the most time of its own. */
static __always_inline struct request_peer *request_peer_most(struct request_sums *sums)
{
	sums->peer_at = 0;
	for (int i = 1; i < REQUEST_PEERS; i++) {
		if (request_peer_ns(&sums->peers[i]) > request_peer_ns(request_peer_at(sums)))
			sums->peer_at = i;
	}
	return request_peer_at(sums);
}

static __always_inline void request_remote_waited(struct request_sums *sums, __u64 ns)
{
	if (ns >= REQUEST_PEER_NS && sums->remote.known)
		request_peer_add(sums, sums->remote.ip, sums->remote.port, ns);
}

/* Attributes a sleep in `net` to the remote end of its socket. */
static __noinline int request_peer_waited(struct request_sums *sums, __u64 ns)
{
	request_remote_waited(sums, ns);
	return 0;
}

/*
 * The same for a sleep of the current thread. Global: explored by the verifier once. Without a
 * further call: at the end of the deepest ones.
 */
__noinline int request_current_waited(__u64 ns)
{
	struct thread *t = thread_find(current_task());

	if (t)
		request_remote_waited(&t->request, ns);
	return 0;
}

#endif
