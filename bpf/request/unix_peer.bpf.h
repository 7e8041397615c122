/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The service at the other end of a unix socket: the name that the service gave to bind(). A peer
 * is 16 bytes and a port (struct request_peer): of such a service, a number made of the name. A map
 * has the names.
 */
#ifndef UNDERSPAN_REQUEST_UNIX_PEER_BPF_H
#define UNDERSPAN_REQUEST_UNIX_PEER_BPF_H

#include "lib/socket.bpf.h"
#include "request/state.bpf.h"
#include "sched/thread.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct request_unix_name);
} request_unix_names SEC(".maps");

/* Only used with interrupts off, by the program of context switches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request_unix_name);
} request_unix_scratch SEC(".maps");

/* Reads the name of the socket's other end. False: it has none, as of socketpair(). */
static __always_inline bool request_unix_name_read(__u64 key, struct request_unix_name *ret)
{
	struct sock *peer = BPF_CORE_READ((struct unix_sock *)key, peer);
	struct unix_address *addr = peer ? BPF_CORE_READ((struct unix_sock *)peer, addr) : NULL;
	__u32 n = addr ? BPF_CORE_READ(addr, len) - sizeof(__u16 /* sun_family */) : 0;

	if (!n)
		return false;
	__builtin_memset(ret, 0, sizeof(*ret));
	ret->n = n;
	barrier_var(n); /* older kernels know the bounds of the compared register alone */
	return n <= sizeof(ret->bytes) &&
	       !bpf_probe_read_kernel(ret->bytes, n, &addr->name[0].sun_path);
}

/*
 * The current thread falls asleep on a unix socket: keeps the service at the other end. Returns
 * nothing of use. Global: for a separate stack.
 */
__noinline int request_sleeps_on_unix(__u64 key)
{
	struct thread *t = thread_find(current_task());
	struct request_unix_name *name;
	__u64 id = 0;
	__u32 zero = 0;

	if (!bpf_core_type_exists(struct unix_sock))
		return 0;
	name = bpf_map_lookup_elem(&request_unix_scratch, &zero);
	if (!t || !name || !request_unix_name_read(key, name))
		return 0;
	for (__u32 i = 0; i < sizeof(*name) / sizeof(id); i++) {
		id = (id ^ ((__u64 *)name)[i]) * 0x9e3779b97f4a7c15ULL;
		id ^= id >> 32;
	}
	if (!bpf_map_lookup_elem(&request_unix_names, &id))
		bpf_map_update_elem(&request_unix_names, &id, name, BPF_ANY);
	__builtin_memset(t->request.remote.ip, 0, 8);
	t->request.remote.ip[0] = REQUEST_UNIX_PEER;
	*(__u64 *)(t->request.remote.ip + 8) = id;
	t->request.remote.port = 0;
	t->request.remote.known = 1;
	return 0;
}

#endif
