/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Python stacks of a loop's thread during a stall. On a CPU: samples of the thread's own CPU clock,
 * at ages of 1, 2, 4 ... times half the threshold; the last sample counts, so the place lies
 * between the middle and the end of a long stall. Asleep: taken at the switch out, when the length
 * of the sleep is unknown, and kept if no earlier sleep of the stall was longer. Walks at switches
 * out share a token bucket per thread.
 */
#ifndef UNDERSPAN_LOOP_STALL_STACK_BPF_H
#define UNDERSPAN_LOOP_STALL_STACK_BPF_H

#include "loop_stall/loop.bpf.h"
#include "lib/stack_cpu_limit.bpf.h"

/* The third part of a key of loop_stacks; a task's address has these bits clear. */
enum loop_stack { LOOP_STACK_SLEEP_A, LOOP_STACK_SLEEP_B, LOOP_STACK_CPU, LOOP_STACK_MAX };

/* On a host with more stalled loops, rows have no stack: counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 384);
	__type(key, __u64); /* task_key() | enum loop_stack */
	__type(value, struct python_stack);
} loop_stacks SEC(".maps");

volatile __u64 loop_stack_share_ppm = 0; /* 0: no limit */

static __always_inline __u64 loop_stack_key(__u32 which)
{
	return (__u64)bpf_get_current_task() | which;
}

/* Walks the current thread's stack. Returns whether there is a stack. */
static __always_inline bool loop_walk(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!walk)
		return false;
	walk->generation++;
	walk->ident = task_ident(task);
	walk->ns_tid = task_ns_id(task);
	walk->tstate = 0;
	walk->shown = 0;
	python_find_tstate(slot);
	python_take_stack(slot);
	return walk->shown != 0;
}

/*
 * Walks with interrupts off and keeps the stack. Returns 0 or the reason of the failure. Global:
 * see python/threads.bpf.h.
 */
__noinline int loop_keep_stack(__u32 which)
{
	struct python_walk *walk = python_walk_of(PYTHON_SLOT_SCHED);
	__u64 key = loop_stack_key(which);

	if (!walk)
		return STAT_STACK_ROOM;
	if (!loop_walk(PYTHON_SLOT_SCHED))
		return STAT_STACK_STATE;
	return bpf_map_update_elem(&loop_stacks, &key, &walk->stack, BPF_ANY) ? STAT_STACK_ROOM : 0;
}

/* The stack at a switch out. */
static __always_inline bool loop_stack_at_switch(struct loop_thread *loop, __u32 which, __u64 now)
{
	struct token_bucket *bucket = (void *)&loop->tokens_ns;
	__u64 ppm = loop_stack_share_ppm;
	bool kept;

	if (ppm && !token_bucket_has_tokens(bucket, ppm, now))
		return false;
	kept = !loop_keep_stack(which);
	token_bucket_take(bucket, bpf_ktime_get_ns() - now);
	return kept;
}

static __always_inline void loop_sampled(struct loop_thread *loop, __u64 age)
{
	loop->cpu_stack = 1;
	loop->sampled_at_ns = age;
	if (age >= loop->next_sample_ns)
		loop->next_sample_ns = age * 2;
}

/*
 * The thread loses its CPU. Where CPUs are scarce, the thread's clock may not have ticked, so
 * places of preemptions count until there is a better sample: each at least twice as old as the
 * last.
 */
static __always_inline void loop_preempted(struct loop_thread *loop, __u64 now)
{
	__u64 age = now - loop->busy_ns;

	if ((!loop->cpu_stack || age >= 2 * loop->sampled_at_ns || age >= loop->next_sample_ns) &&
	    loop_stack_at_switch(loop, LOOP_STACK_CPU, now))
		loop_sampled(loop, age);
}

static __always_inline void loop_stacks_delete(void)
{
	for (__u32 i = 0; i < LOOP_STACK_MAX; i++) {
		__u64 key = loop_stack_key(i);

		bpf_map_delete_elem(&loop_stacks, &key);
	}
}

#endif
