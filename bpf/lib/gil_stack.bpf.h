/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stacks of a wait for the GIL: the waiter's, and that of the thread that held it when
 * the wait began. They are taken when the wait is certain to be long enough, in a context of the
 * process: when the waiter goes back to sleep, or when it is woken by who gives the GIL away. A
 * thread that has given the GIL away is, in Python, where it was when it did.
 */
#ifndef UNDERSPAN_GIL_STACK_BPF_H
#define UNDERSPAN_GIL_STACK_BPF_H

#include "pythread.bpf.h"
#include "thread.bpf.h"

/* An event in the making, of a wait that has stacks: the waiter's frames, then the holder's. */
struct gil_wait_with_stacks {
	struct gil_wait_event event;
	struct python_frame frames[2 * PYTHON_STACK_MAX];
};

/* Waits that are open and long. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, __u32); /* host tid */
	__type(value, struct gil_wait_with_stacks);
} gil_stacks SEC(".maps");

static const struct gil_wait_with_stacks empty_stacks;

const volatile __u64 gil_stack_min_ns = 1000000;

/* The second time that a thread does not get the GIL its holder has been asked for it and cannot.
 */
enum { GIL_STACK_SAMPLES = 2 };

static __always_inline bool gil_stacks_wanted(struct gil_wait *w, __u64 now)
{
	return w->start_ns && now - w->start_ns >= gil_stack_min_ns;
}

/* What is wanted of gil_take_stacks(), and what it has got. */
enum { GIL_STACK_WAITER = 1, GIL_STACK_HOLDER = 2, GIL_STACK_HAD_HOLDER = 4 };

static __always_inline bool gil_take_holder(__u32 slot, struct gil_wait_with_stacks *with,
					    __u64 tstate, __u64 ident, bool had)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u32 n = *(volatile __u16 *)&with->event.py_stack.n;

	barrier_var(n);
	if (n > PYTHON_STACK_MAX || !walk || !o)
		return had;
	/* the thread may have ended, and its memory be something else */
	if (!tstate || !ident || read_user_u64(tstate + o->tstate_thread_id) != ident)
		return had;
	walk->tstate = tstate;
	/* most that keep the GIL do so in one call */
	if (had && python_same_place(slot, &with->frames[n]))
		return had;
	python_take_stack(slot);
	if (!walk->info.n)
		return had;
	/* the current thread does not run on while it is looked at */
	if (task_ident((struct task_struct *)bpf_get_current_task()) != ident &&
	    (!python_stack_stands(slot) || read_user_u64(tstate + o->tstate_thread_id) != ident))
		return had;
	python_copy_stack(walk, &with->frames[n], &with->event.holder_py_stack);
	return true;
}

/*
 * The current thread is the waiter, or of the same process. The walk in the slot says who the
 * waiter is. Global: see pythread.bpf.h.
 */
__noinline int gil_take_stacks(__u32 slot, __u32 tid, __u64 tstate, __u64 ident, __u32 wanted)
{
	struct python_walk *walk = python_walk_of(slot);
	struct gil_wait_with_stacks *with;

	if (!walk)
		return 0;
	if (wanted & GIL_STACK_WAITER &&
	    bpf_map_update_elem(&gil_stacks, &tid, &empty_stacks, BPF_ANY)) {
		stat_add_in(&gil_wait_stats, STAT_READ_FAIL, 1);
		return 0;
	}
	with = bpf_map_lookup_elem(&gil_stacks, &tid);
	if (!with)
		return 0;
	if (wanted & GIL_STACK_WAITER) {
		python_find_tstate(slot);
		python_take_stack(slot);
		python_copy_stack(walk, with->frames, &with->event.py_stack);
	}
	return GIL_STACK_WAITER |
	       (gil_take_holder(slot, with, tstate, ident, wanted & GIL_STACK_HAD_HOLDER)
			? GIL_STACK_HOLDER
			: 0);
}

static __always_inline void gil_take(struct task_struct *waiter, struct thread *t, __u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	struct gil_wait *w = &t->gil;
	__u32 tgid = current_tgid(), got;

	if (!walk || !bpf_map_lookup_elem(&python_processes, &tgid))
		return;
	walk->ident = task_ident(waiter);
	walk->ns_tid = typed_task_ns_id(waiter);
	got = gil_take_stacks(slot, BPF_CORE_READ(waiter, pid), w->holder_tstate,
			      w->holders[0].ident,
			      (w->stacks ? 0 : GIL_STACK_WAITER) |
				      (w->has_holder_stack ? GIL_STACK_HAD_HOLDER : 0));
	if (!got)
		return;
	if (w->stacks < GIL_STACK_SAMPLES)
		w->stacks++;
	w->has_holder_stack = (got & GIL_STACK_HOLDER) != 0;
}

/* The waiter goes back to sleep. */
static __always_inline void gil_stacks_at_sleep(struct task_struct *task, struct thread *t,
						__u64 now)
{
	struct gil_wait *w = &t->gil;

	if ((!w->has_holder_stack || (w->stacks < GIL_STACK_SAMPLES && w->n_holders == 1)) &&
	    gil_stacks_wanted(w, now))
		gil_take(task, t, PYTHON_SLOT_SCHED);
}

/* The waiter is woken because the GIL is free. */
static __always_inline void gil_stacks_at_wake(struct task_struct *task, struct thread *t,
					       __u64 now)
{
	if (!t->gil.has_holder_stack && gil_stacks_wanted(&t->gil, now))
		gil_take(task, t, PYTHON_SLOT_SCHED);
}

/*
 * The waiter is back from a sleep, on its way to user mode, where it may find the GIL free: woken
 * by the clock, or after a long wait for a CPU.
 */
static __always_inline void gil_stacks_at_return(struct task_struct *task, struct thread *t,
						 __u64 now)
{
	struct gil_wait *w = &t->gil;
	__u64 start = w->start_ns;
	__u32 tid;

	if (w->stacks || w->word || !gil_stacks_wanted(w, now))
		return;
	gil_take(task, t, PYTHON_SLOT_RETURN);
	if (w->start_ns != start && w->stacks) { /* preempted meanwhile, and that was the end */
		tid = BPF_CORE_READ(task, pid);
		bpf_map_delete_elem(&gil_stacks, &tid);
		w->stacks = w->has_holder_stack = 0;
	}
}

#endif
