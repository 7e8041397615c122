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

/*
 * What is to be looked at. Global functions are verified once each and not once per path to
 * them, but are given numbers only.
 */
struct gil_stack_request {
	__u32 waiter_tid, waiter_ns_tid; /* the host's, the namespace's */
	__u64 waiter_ident;
	__u64 holder_tstate, holder_ident;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gil_stack_request);
} gil_stack_request SEC(".maps");

__noinline int gil_take_waiter(void)
{
	__u32 zero = 0;
	struct gil_stack_request *wanted = bpf_map_lookup_elem(&gil_stack_request, &zero);
	struct gil_wait_with_stacks *with;
	struct python_view view;

	if (!wanted || !python_view_of(current_tgid(), &view))
		return 0;
	with = bpf_map_lookup_elem(&gil_stacks, &wanted->waiter_tid);
	if (!with)
		return 0;
	python_stack(view.offsets,
		     python_tstate_of(&view, wanted->waiter_ident, wanted->waiter_ns_tid),
		     with->frames, &with->event.py_stack, view.scratch);
	return 0;
}

__noinline int gil_take_holder(void)
{
	__u32 zero = 0, n;
	struct gil_stack_request *wanted = bpf_map_lookup_elem(&gil_stack_request, &zero);
	struct gil_wait_with_stacks *with;
	struct python_stack_info *info;
	struct python_frame *frames;
	struct python_view view;
	__u64 tstate;

	if (!wanted || !python_view_of(current_tgid(), &view))
		return 0;
	with = bpf_map_lookup_elem(&gil_stacks, &wanted->waiter_tid);
	tstate = wanted->holder_tstate;
	/* the thread may have ended, and its memory be something else */
	if (!with || !tstate || !wanted->holder_ident ||
	    read_user_u64(tstate + view.offsets->tstate_thread_id) != wanted->holder_ident)
		return 0;
	n = *(volatile __u16 *)&with->event.py_stack.n;
	if (n > PYTHON_STACK_MAX)
		return 0;
	barrier_var(n);
	if (n > PYTHON_STACK_MAX)
		return 0;
	frames = &with->frames[n];
	info = &with->event.holder_py_stack;
	python_stack(view.offsets, tstate, frames, info, view.scratch);
	if (!python_stack_stands(&view, tstate, frames, info) ||
	    read_user_u64(tstate + view.offsets->tstate_thread_id) != wanted->holder_ident)
		info->n = info->cut = 0;
	return 0;
}

/* The current thread is the waiter, about to sleep, or of the same process, about to wake it. */
static __always_inline void gil_take_stacks(struct task_struct *waiter, struct thread *t)
{
	struct gil_stack_request *wanted;
	struct gil_wait *w = &t->gil;
	__u32 zero = 0;

	wanted = bpf_map_lookup_elem(&gil_stack_request, &zero);
	if (!wanted)
		return;
	wanted->waiter_tid = BPF_CORE_READ(waiter, pid);
	wanted->waiter_ns_tid = typed_task_ns_id(waiter);
	wanted->waiter_ident = task_ident(waiter);
	wanted->holder_tstate = w->holder_tstate;
	wanted->holder_ident = w->holders[0].ident;
	if (!w->stacks) {
		if (bpf_map_update_elem(&gil_stacks, &wanted->waiter_tid, &empty_stacks, BPF_ANY)) {
			stat_add_in(&gil_wait_stats, STAT_READ_FAIL, 1);
			return;
		}
		gil_take_waiter();
	}
	gil_take_holder();
	w->stacks++;
}

/* The waiter goes back to sleep. */
static __always_inline void gil_stacks_at_sleep(struct task_struct *task, struct thread *t,
						__u64 now)
{
	struct gil_wait *w = &t->gil;

	if (w->stacks < GIL_STACK_SAMPLES && (!w->stacks || w->n_holders == 1) &&
	    gil_stacks_wanted(w, now))
		gil_take_stacks(task, t);
}

/* The waiter is woken because the GIL is free. */
static __always_inline void gil_stacks_at_wake(struct task_struct *task, struct thread *t,
					       __u64 now)
{
	if (!t->gil.stacks && gil_stacks_wanted(&t->gil, now))
		gil_take_stacks(task, t);
}

#endif
