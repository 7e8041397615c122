/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a worker thread as it picks a connection up: in the system call with which it
 * does, or where that reads, so in the thread's own context and with the GIL given away. It is
 * taken where a request waited long enough for somebody to ask, and stands in the row that is made
 * at once. Only where every hand-off is to have one, some are picked up before a byte is there:
 * those stacks are kept, by what they look like, until the row is made.
 */
#ifndef UNDERSPAN_HANDOFF_STACK_BPF_H
#define UNDERSPAN_HANDOFF_STACK_BPF_H

#include "underspan.bpf.h"
#include "compat.bpf.h"
#include "events/handoff.h"
#include "pythread.bpf.h"
#include "stack_share.bpf.h"

/* A row in the making, too big for the BPF stack; PYTHON_SLOT_SCHED's walk goes with it. */
struct handoff_row {
	__u64 users; /* on this CPU: programs may be preempted on kernels since 7.0, or interrupted
		      */
	struct handoff_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handoff_row);
} handoff_row SEC(".maps");

/* LRU: one that is pushed out before its row is made is counted. Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* python_walk.hash */
	__type(value, struct python_stack);
} handoff_stacks SEC(".maps");

/* LRU: a process that ends leaves its own. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* host pid */
	__type(value, struct stack_share);
} handoff_shares SEC(".maps");

static const struct stack_share new_share;

/* What taking them has cost, for tests to read. */
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
/* Under load each request waits, also long: all of them share this part of the process's time. */
volatile __u64 handoff_stack_share_ppm = 0; /* 0: no limit; may change while it runs */

/* The row and the walk of this CPU, or NULL when somebody who is preempted has them. */
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

static __always_inline struct stack_share *handoff_share(__u32 tgid)
{
	struct stack_share *share = bpf_map_lookup_elem(&handoff_shares, &tgid);

	if (share)
		return share;
	bpf_map_update_elem(&handoff_shares, &tgid, &new_share, BPF_NOEXIST);
	return bpf_map_lookup_elem(&handoff_shares, &tgid);
}

/* Takes the current thread's stack. Returns why there is none, or 0. Global: see pythread.bpf.h. */
__noinline int handoff_take_stack(__u32 ns_tid)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	__u64 begin = bpf_ktime_get_ns(), ppm = handoff_stack_share_ppm, ns;
	struct stack_share *share = handoff_share(current_tgid());
	struct handoff_cost *cost;
	__u32 zero = 0;

	if (!walk || !share)
		return STAT_STACK_ROOM;
	if (ppm && !stack_share_left(share, ppm, begin))
		return STAT_STACK_SHARE;
	walk->moment++;
	walk->ident = task_ident((struct task_struct *)bpf_get_current_task());
	walk->ns_tid = ns_tid;
	walk->tstate = 0;
	walk->shown = 0;
	python_find_tstate(PYTHON_SLOT_SCHED);
	python_take_stack(PYTHON_SLOT_SCHED);
	ns = bpf_ktime_get_ns() - begin;
	stack_share_pay(share, ns);
	cost = bpf_map_lookup_elem(&handoff_cost, &zero);
	if (cost) {
		cost->takes++;
		cost->ns += ns;
	}
	return walk->shown ? 0 : STAT_STACK_STATE;
}

/* Keeps what was just taken. Returns its key, 0 when there is no room. */
static __always_inline __u64 handoff_keep_stack(void)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	__u64 key = walk ? walk->hash | 1 : 0;

	if (!walk || (!bpf_map_lookup_elem(&handoff_stacks, &key) &&
		      bpf_map_update_elem(&handoff_stacks, &key, &walk->stack, BPF_ANY)))
		return 0;
	return key;
}

/* Sends what stands in handoff_row, with the stack of this key; 0: the one that was just taken.
 * Returns why it could not, or 0. Global: see pythread.bpf.h. */
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
