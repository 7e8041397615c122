/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The locks on which threads of pools wait for work. Where several threads take work from one
 * queue, as in concurrent.futures, the thread that is woken may find the queue empty, since another
 * one came first, or takes work that was handed on later. The workers of anyio have a queue each.
 */
#ifndef UNDERSPAN_REQUEST_LOCKS_BPF_H
#define UNDERSPAN_REQUEST_LOCKS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

struct request_lock {
	__u64 address; /* in the process */
	__u32 tgid;
	__u32 pad;
};

struct request_lock_user {
	__u64 thread;	/* host_tid; 0: several */
	__u64 woken_ns; /* the last time */
	__u64 waits;	/* in a row, up to REQUEST_OWN_WAITS */
};

enum { REQUEST_OWN_WAITS = 2 };

/* LRU: nothing tells that a lock is freed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct request_lock);
	__type(value, struct request_lock_user);
} request_locks SEC(".maps");

/*
 * The thread, asleep since `since`, waits for work on the lock, 0 for unknown. Is the lock its own?
 * Not if another thread was woken from it meanwhile; a queue of Python has a new lock for each
 * wait, at an address that other threads may have had before. Global: the verifier explores it
 * once.
 */
__noinline int request_lock_is_own(__u32 tgid, __u64 address, __u32 thread, __u64 since, __u64 now)
{
	struct request_lock lock = { .address = address, .tgid = tgid };
	struct request_lock_user first = { .thread = thread, .woken_ns = now, .waits = 1 };
	struct request_lock_user *user;

	if (!address)
		return false;
	user = bpf_map_lookup_elem(&request_locks, &lock);
	if (!user) {
		bpf_map_update_elem(&request_locks, &lock, &first, BPF_NOEXIST);
		return false;
	}
	if (!user->thread)
		return false;
	if (user->thread != thread) {
		user->thread = since < user->woken_ns ? 0 : thread;
		user->waits = 0;
	}
	user->woken_ns = now;
	if (user->waits < REQUEST_OWN_WAITS)
		user->waits++;
	return user->waits == REQUEST_OWN_WAITS;
}

/* The thread that waited on the lock has ended. */
__noinline int request_lock_forget(__u32 tgid, __u64 address, __u32 thread)
{
	struct request_lock lock = { .address = address, .tgid = tgid };
	const struct request_lock_user *user = bpf_map_lookup_elem(&request_locks, &lock);

	if (user && user->thread == thread)
		bpf_map_delete_elem(&request_locks, &lock);
	return 0;
}

#endif
