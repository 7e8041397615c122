/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stacks of a wait for the GIL: the waiter's, and that of the thread that held it when
 * the wait began. They are taken when the wait is certain to be long enough, in a context of the
 * process: when the waiter goes back to sleep, or when it is woken by who gives the GIL away. A
 * thread that has given the GIL away is, in Python, where it was when it did.
 *
 * Until the wait is over they are kept by what they look like: thousands of threads that wait do so
 * at a few places, for the same holder.
 */
#ifndef UNDERSPAN_GIL_STACK_BPF_H
#define UNDERSPAN_GIL_STACK_BPF_H

#include "gil_holders.bpf.h"
#include "pythread.bpf.h"
#include "thread.bpf.h"

/* LRU: one that is pushed out before its row is made is counted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* python_walk.hash */
	__type(value, struct python_stack);
} gil_stacks SEC(".maps");

/* A row in the making: the waiter's frames, then the holder's. Made with interrupts off. */
struct gil_wait_with_stacks {
	struct gil_wait_event event;
	struct python_frame frames[2 * PYTHON_STACK_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gil_wait_with_stacks);
} gil_row SEC(".maps");

/* What taking them has cost, for tests/bench/bench_stacks.py to read. */
struct gil_stack_cost {
	__u64 takes, ns;
	__u64 rows; /* with both stacks */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gil_stack_cost);
} gil_stack_cost SEC(".maps");

const volatile __u64 gil_stack_min_ns = 1000000;

enum {
	/* The second time that a thread does not get the GIL its holder has been asked for it and
	 * cannot. */
	GIL_STACK_SAMPLES = 2,
	/* A holder that ran on whenever it was looked at. */
	GIL_STACK_TRIES = 8,
	/* Waiters that want the same holder's stack in so short a time take the same. */
	GIL_STACK_SHARED_NS = 1000000,
	/* More than from a switch to user mode, with interrupts in between. */
	GIL_RETURN_NS = 20000,
	/* No less than a struct _gil_runtime_state has. */
	GIL_BYTES = 256,
};

/*
 * Stacks are taken while a GIL changes hands, and nobody has it meanwhile: what they cost, the
 * process loses. So they have a share of its time, and a long wait, of which there cannot be many,
 * has its stacks in any case.
 */
volatile __u64 gil_stack_share_ppm = 0; /* 0: no limit; may change while it runs */
enum { GIL_STACK_LONG_NS = 10000000 };

/* Not inlined: its caller has little room on the stack left (512 bytes a chain of calls). */
static __noinline bool gil_stacks_affordable(struct gil_history *history, struct gil_wait *w,
					     __u64 now)
{
	__u64 ppm = gil_stack_share_ppm;

	return !history || !ppm || now - w->start_ns >= GIL_STACK_LONG_NS ||
	       stack_share_left(&history->stacks, ppm, now);
}

static __always_inline bool gil_stacks_wanted(struct gil_wait *w, __u64 now)
{
	return w->start_ns && now > w->start_ns && now - w->start_ns >= gil_stack_min_ns;
}

/* Keeps the stack that was just taken. Returns its key, 0 when there is none. */
static __always_inline __u64 gil_keep_stack(struct python_walk *walk, __u8 *ret_missed)
{
	__u64 key = walk->hash | 1;

	*ret_missed = STAT_STACK_STATE;
	if (!walk->shown)
		return 0;
	*ret_missed = STAT_STACK_ROOM;
	if (!bpf_map_lookup_elem(&gil_stacks, &key) &&
	    bpf_map_update_elem(&gil_stacks, &key, &walk->stack, BPF_ANY))
		return 0;
	return key;
}

/*
 * Takes the stack of the thread, one of the current process, with this state and identity. Returns
 * why there is none, or 0. Global: see pythread.bpf.h.
 */
__noinline int gil_take_holder(__u32 slot, __u64 tstate, __u64 ident)
{
	struct python_walk *walk = python_walk_of(slot);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);

	if (!walk || !o)
		return STAT_STACK_STATE;
	walk->tstate = tstate;
	python_take_stack(slot);
	if (!walk->shown)
		return STAT_STACK_STATE;
	/* the current thread does not run on while it is looked at */
	if (task_ident((struct task_struct *)bpf_get_current_task()) != ident &&
	    (!python_stack_stands(slot) || read_user_u64(tstate + o->tstate_thread_id) != ident))
		return STAT_STACK_MOVED;
	return 0;
}

/* Another waiter's look at the same holder, a moment ago and since this one waits; 0: none. */
static __noinline __u64 gil_shared_holder(struct gil_history *history, struct gil_wait *w,
					  __u64 now)
{
	struct gil_sample sample;

	if (!history)
		return 0;
	sample = *(volatile struct gil_sample *)&history->sample;
	if (sample.tstate != w->holder_tstate || sample.ns < w->start_ns ||
	    now - sample.ns > GIL_STACK_SHARED_NS ||
	    sample.check != (sample.tstate ^ sample.ns ^ sample.stack) ||
	    !bpf_map_lookup_elem(&gil_stacks, &sample.stack))
		return 0;
	return sample.stack;
}

static __always_inline void gil_look_at_holder(struct python_walk *walk, struct gil_wait *w,
					       __u32 slot, struct gil_history *history,
					       __u64 at_offset, __u64 now)
{
	__u64 tstate = w->holder_tstate, ident = w->holders[0].ident, key;
	__u8 missed = STAT_STACK_STATE;

	/* the thread may have ended, and its memory be something else */
	if (!tstate || !ident || read_user_u64(tstate + at_offset) != ident)
		goto missed;
	key = gil_shared_holder(history, w, now);
	if (key) {
		w->holder_stack = key;
		w->holder_at.code = 0; /* not known: the next time it is taken again */
		return;
	}
	walk->tstate = tstate;
	/* most that keep the GIL do so in one call */
	if (w->holder_stack && python_same_place(slot, &w->holder_at))
		return;
	missed = gil_take_holder(slot, tstate, ident);
	if (missed)
		goto missed;
	key = gil_keep_stack(walk, &missed);
	if (!key)
		goto missed;
	w->holder_stack = key;
	w->holder_at = walk->stack.frames[0];
	if (history)
		history->sample = (struct gil_sample){ now, tstate, key, now ^ tstate ^ key };
	return;
missed:
	if (!w->holder_stack)
		w->holder_missed = missed;
}

static __always_inline void gil_take(struct task_struct *waiter, struct thread *t, __u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	__u32 tgid = current_tgid(), zero = 0;
	struct gil_stack_cost *cost = bpf_map_lookup_elem(&gil_stack_cost, &zero);
	const struct python_process *process;
	const struct python_offsets *o = python_current_offsets(&process);
	__u64 begin = bpf_ktime_get_ns(), ns;
	struct gil_wait *w = &t->gil;
	struct gil_history *history = gil_history_of(tgid, w->gil);

	if (!gil_stacks_affordable(history, w, begin)) {
		w->missed = w->holder_missed = STAT_STACK_SHARE;
		return;
	}
	if (w->samples < 255)
		w->samples++;
	if (!walk || !cost || !o) {
		w->missed = w->holder_missed = STAT_STACK_STATE;
		return;
	}
	walk->moment++;
	if (!w->stack) {
		walk->ident = task_ident(waiter);
		walk->ns_tid = typed_task_ns_id(waiter);
		python_find_tstate(slot);
		python_take_stack(slot);
		w->stack = gil_keep_stack(walk, &w->missed);
	}
	gil_look_at_holder(walk, w, slot, history, o->tstate_thread_id, begin);
	ns = bpf_ktime_get_ns() - begin;
	if (history)
		stack_share_pay(&history->stacks, ns);
	cost->takes++;
	cost->ns += ns;
}

/* The waiter goes back to sleep. */
static __always_inline void gil_stacks_at_sleep(struct task_struct *task, struct thread *t,
						__u64 now)
{
	struct gil_wait *w = &t->gil;
	bool whole = w->stack && w->holder_stack;

	if (w->samples < (whole ? GIL_STACK_SAMPLES : GIL_STACK_TRIES) &&
	    (!whole || w->n_holders == 1) && gil_stacks_wanted(w, now))
		gil_take(task, t, PYTHON_SLOT_SCHED);
}

/* The waiter is woken because the GIL is free. */
static __always_inline void gil_stacks_at_wake(struct task_struct *task, struct thread *t,
					       __u64 now)
{
	if ((!t->gil.stack || !t->gil.holder_stack) && gil_stacks_wanted(&t->gil, now))
		gil_take(task, t, PYTHON_SLOT_SCHED);
}

static __always_inline void gil_forget_stacks(struct gil_wait *w)
{
	w->stack = w->holder_stack = 0;
	w->samples = w->missed = w->holder_missed = 0;
}

/*
 * Does the thread come back from the sleep in which its wait ended? It may have got the GIL, gone
 * on, and lost its CPU somewhere else, or be at the end of another system call; then the wait,
 * though it has not been reported yet, is over, and this is no place where it was.
 */
static __always_inline bool gil_returns(struct task_struct *task, struct thread *t, __u64 now)
{
	struct user_call call;

	if (t->gil.end_ns != t->on_ns)
		return false;
	task_user_call(task, &call);
	if (call.nr == NR_futex)
		return call.arg1 - t->gil.gil < GIL_BYTES;
	return call.nr < 0 &&
	       now - t->on_ns < GIL_RETURN_NS; /* it had lost its CPU in take_gil() */
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

	if (w->stack || w->word || w->samples >= GIL_STACK_TRIES ||
	    !gil_stacks_wanted(w, w->end_ns) || !gil_returns(task, t, now))
		return;
	gil_take(task, t, PYTHON_SLOT_RETURN);
	if (w->start_ns != start) /* preempted meanwhile, and that was the end */
		gil_forget_stacks(w);
}

/* ---- the row ---- */

static __always_inline void gil_stack_missing(__u8 why)
{
	stat_add_in(&gil_wait_stats, why ?: STAT_STACK_LATE, 1);
}

/* Appends the stack with this key; returns how many frames there are then. */
static __always_inline __u32 gil_append(struct gil_wait_with_stacks *row, __u32 n, __u64 key,
					struct python_stack_info *info)
{
	struct python_stack *stack = bpf_map_lookup_elem(&gil_stacks, &key);

	if (!stack) {
		gil_stack_missing(STAT_STACK_ROOM);
		return n;
	}
	barrier_var(n);
	if (n > PYTHON_STACK_MAX)
		return n;
	python_copy_stack(stack, &row->frames[n], info);
	return n + *(volatile __u16 *)&info->n;
}

/* Sends what stands in gil_row. */
__noinline int gil_send_row(__u64 stack, __u64 holder_stack)
{
	__u32 zero = 0, n = 0;
	struct gil_wait_with_stacks *row = bpf_map_lookup_elem(&gil_row, &zero);
	struct gil_stack_cost *cost = bpf_map_lookup_elem(&gil_stack_cost, &zero);

	if (!row)
		return 0;
	if (cost && stack && holder_stack)
		cost->rows++;
	if (stack)
		n = gil_append(row, n, stack, &row->event.py_stack);
	if (holder_stack)
		n = gil_append(row, n, holder_stack, &row->event.holder_py_stack);
	if (n > 2 * PYTHON_STACK_MAX)
		n = 2 * PYTHON_STACK_MAX;
	event_output_in(&gil_wait_events, &gil_wait_stats, &gil_wait_sampling, row,
			sizeof(row->event) + n * sizeof(row->frames[0]));
	return 0;
}

#endif
