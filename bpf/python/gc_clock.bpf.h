/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The time that collections take in each process, kept by gc_pause's probes for the tracker
 * request. bpf/process.bpf.c owns the maps, the objects share their fds. A process without an entry
 * has no probes: user space adds the entries (src/trackers/gc_pause.c).
 */
#ifndef UNDERSPAN_PYTHON_GC_CLOCK_BPF_H
#define UNDERSPAN_PYTHON_GC_CLOCK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "gc_clock.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* host pid */
	__type(value, struct gc_clock);
} gc_clocks SEC(".maps");

/* On a CPU in own collections, by pid_tgid. LRU: the entries of ended threads are not deleted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} gc_own SEC(".maps");

/*
 * Collections by the lower bits of the process id: one load decides whether to look up a running
 * collection at a context switch, and the thread's own collections at a request's begin and end. A
 * process killed inside a collection leaves `running`, which costs the processes of the slot the
 * look-up.
 */
enum { GC_SLOTS = 4096 };
struct gc_slot {
	__u64 running;
	__u64 ended; /* grows before each end of a collection */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GC_SLOTS);
	__type(key, __u32);
	__type(value, struct gc_slot);
} gc_running SEC(".maps");

static __always_inline struct gc_slot *gc_slot_of(__u32 tgid)
{
	__u32 slot = tgid & (GC_SLOTS - 1);

	return bpf_map_lookup_elem(&gc_running, &slot);
}

static __always_inline bool gc_may_run(__u32 tgid)
{
	const struct gc_slot *slot = gc_slot_of(tgid);

	return slot && slot->running;
}

static __always_inline void gc_running_add(__u32 tgid, __s64 n)
{
	struct gc_slot *slot = gc_slot_of(tgid);

	if (slot)
		__sync_fetch_and_add(&slot->running, n);
}

/* A collection of the current thread begins. */
static __always_inline void gc_clock_start(__u64 now)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 tgid = thread >> 32;
	struct gc_clock *clock = bpf_map_lookup_elem(&gc_clocks, &tgid);

	/* two interpreters of a process may collect at a time: the clock follows the first */
	if (!clock || (clock->since_ns && clock->host_tid != (__u32)thread))
		return;
	if (!clock->since_ns) /* otherwise the end was not seen */
		gc_running_add(tgid, 1);
	clock->host_tid = thread;
	clock->off_ns = 0;
	clock->since_ns = now;
}

static __always_inline void gc_clock_stop(__u64 now)
{
	__u64 thread = bpf_get_current_pid_tgid(), ns, own, *known;
	struct gc_slot *slot;
	__u32 tgid = thread >> 32;
	struct gc_clock *clock = bpf_map_lookup_elem(&gc_clocks, &tgid);

	if (!clock || !clock->since_ns || clock->host_tid != (__u32)thread)
		return;
	/* first: with the same `ended` and nothing running, total_ns is the same */
	slot = gc_slot_of(tgid);
	if (slot)
		__sync_fetch_and_add(&slot->ended, 1);
	ns = now - clock->since_ns;
	own = ns > clock->off_ns ? ns - clock->off_ns : 0;
	clock->total_ns += ns;
	clock->since_ns = 0;
	gc_running_add(tgid, -1);
	known = bpf_map_lookup_elem(&gc_own, &thread);
	if (known)
		*known += own;
	else
		bpf_map_update_elem(&gc_own, &thread, &own, BPF_ANY);
}

/* The process's clock as seen by a sibling of the collecting thread. */
static __always_inline __u64 gc_clock_of_siblings(const struct gc_clock *clock, __u32 host_tid,
						  __u64 now)
{
	__u64 since = clock->since_ns;

	if (since && now > since && clock->host_tid != host_tid)
		return clock->total_ns + (now - since);
	return clock->total_ns;
}

/* On a CPU in the current thread's own collections so far; none is running. */
static __always_inline __u64 gc_own_ns_of(__u64 thread)
{
	__u64 *ns = bpf_map_lookup_elem(&gc_own, &thread);

	return ns ? *ns : 0;
}

static __always_inline __u64 gc_own_ns(void)
{
	return gc_own_ns_of(bpf_get_current_pid_tgid());
}

#endif
