/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a worker thread at the pickup of a connection. The walk runs in the worker's
 * own system call, so in its context and without the GIL. Walks happen only when the wait exceeds
 * the stack threshold, and the row is usually made at once. With a threshold of 0 a connection may
 * be picked up before its first byte: such stacks are kept in a map under a hash of the frames
 * until the row is made.
 */
#ifndef UNDERSPAN_HANDOFF_STACK_BPF_H
#define UNDERSPAN_HANDOFF_STACK_BPF_H

#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/compat.bpf.h"
#include "events/handoff.h"
#include "python/threads.bpf.h"
#include "lib/stack_cpu_limit.bpf.h"

/*
 * Scratch space for a row, too big for the BPF stack; shares its life with the walk of
 * PYTHON_SLOT_SCHED.
 */
struct handoff_row {
	__u64 users; /* programs using the row: kernels since 7.0 may preempt a program */
	struct handoff_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handoff_row);
} handoff_row SEC(".maps");

/* LRU: a stack evicted before its row is made is counted. Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* python_walk.hash */
	__type(value, struct python_stack);
} handoff_stacks SEC(".maps");

/* LRU: the entries of ended processes are not deleted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* host pid */
	__type(value, struct token_bucket);
} handoff_buckets SEC(".maps");

static const struct token_bucket new_bucket;

/* Cost of the walks, read by tests. */
struct handoff_cost {
	__u64 takes, ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handoff_cost);
} handoff_cost SEC(".maps");

const volatile __u64 handoff_stack_min_ns = 1000000;
/* Under load every request waits, even for long: all walks of a process share the tokens. */
volatile __u64 handoff_stack_share_ppm =
	0; /* 0: no limit; user space may change the value at any time */

/* Claims this CPU's row and walk; NULL: a preempted program holds them. */
static __always_inline struct handoff_row *handoff_row_begin(void)
{
	__u32 zero = 0;
	struct handoff_row *row = bpf_map_lookup_elem(&handoff_row, &zero);

	if (!row)
		return NULL;
	__sync_fetch_and_add(&row->users, 1);
	if (*(volatile __u64 *)&row->users == 1)
		return row;
	__sync_fetch_and_add(&row->users, -1);
	return NULL;
}

static __always_inline void handoff_row_end(struct handoff_row *row)
{
	__sync_fetch_and_add(&row->users, -1);
}

static __always_inline struct token_bucket *handoff_bucket(__u32 tgid)
{
	struct token_bucket *bucket = bpf_map_lookup_elem(&handoff_buckets, &tgid);

	if (bucket)
		return bucket;
	bpf_map_update_elem(&handoff_buckets, &tgid, &new_bucket, BPF_NOEXIST);
	return bpf_map_lookup_elem(&handoff_buckets, &tgid);
}

/*
 * Walks the current thread's stack. Returns 0 or the reason why there is no stack. Global: see
 * python/threads.bpf.h.
 */
__noinline int handoff_take_stack(__u32 ns_tid)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	__u64 begin = bpf_ktime_get_ns(), ppm = handoff_stack_share_ppm, ns;
	struct token_bucket *bucket = handoff_bucket(current_tgid());
	struct handoff_cost *cost;
	__u32 zero = 0;

	if (!walk || !bucket)
		return STAT_STACK_ROOM;
	if (ppm && !token_bucket_has_tokens(bucket, ppm, begin))
		return STAT_STACK_SHARE;
	walk->generation++;
	walk->ident = task_ident((struct task_struct *)bpf_get_current_task());
	walk->ns_tid = ns_tid;
	walk->tstate = 0;
	walk->shown = 0;
	python_find_tstate(PYTHON_SLOT_SCHED);
	python_take_stack(PYTHON_SLOT_SCHED);
	ns = bpf_ktime_get_ns() - begin;
	token_bucket_take(bucket, ns);
	cost = bpf_map_lookup_elem(&handoff_cost, &zero);
	if (cost) {
		count_add(&cost->takes, 1);
		count_add(&cost->ns, ns);
	}
	return walk->shown ? 0 : STAT_STACK_STATE;
}

/* Keeps the stack of the last walk. Returns the key, 0 when the map is full. */
static __always_inline __u64 handoff_keep_stack(void)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	__u64 key = walk ? walk->hash | 1 : 0;

	if (!walk || (!bpf_map_lookup_elem(&handoff_stacks, &key) &&
		      bpf_map_update_elem(&handoff_stacks, &key, &walk->stack, BPF_ANY)))
		return 0;
	return key;
}

/*
 * Sends the row in handoff_row with the stack of `key`; 0: the stack of the last walk. Returns 0 or
 * the reason of the failure. Global: see python/threads.bpf.h.
 */
__noinline int handoff_send_row(__u64 key)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	struct python_stack *stack;
	struct handoff_row *row;
	__u32 zero = 0, n;

	row = bpf_map_lookup_elem(&handoff_row, &zero);
	if (!row || !walk)
		return STAT_STACK_ROOM;
	stack = key ? bpf_map_lookup_elem(&handoff_stacks, &key) : &walk->stack;
	if (!stack)
		return STAT_STACK_ROOM;
	python_copy_stack(stack, row->frames, &row->event.py_stack);
	n = *(volatile __u16 *)&row->event.py_stack.n;
	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	event_output(&row->event, sizeof(row->event) + n * sizeof(row->frames[0]));
	return 0;
}

#endif
