/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stacks of a wait for the GIL: the waiter's stack, and the stack of the first holder.
 * Both are walked in a context of the process, once the wait is certain to be long enough: when the
 * waiter goes back to sleep, or when the dropper wakes the waiter. A thread that dropped the GIL
 * is, in Python, still in the frame of the drop.
 *
 * Until the wait ends, stacks are kept in a map under a hash of the frames: thousands of waiting
 * threads share a few stacks and the same holder.
 */
#ifndef UNDERSPAN_GIL_WAIT_STACKS_BPF_H
#define UNDERSPAN_GIL_WAIT_STACKS_BPF_H

#include "gil_wait/events.bpf.h"
#include "gil_wait/holders.bpf.h"
#include "lib/compat.bpf.h"
#include "lib/stack_cpu_limit.bpf.h"
#include "python/threads.bpf.h"
#include "sched/thread.bpf.h"

/* LRU: a stack evicted before its row is made is counted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* python_walk.hash */
	__type(value, struct python_stack);
} gil_stacks SEC(".maps");

/* Scratch space for a row, used with interrupts off: the waiter's frames, then the holder's. */
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

/* Cost of the walks, read by tests/bench/bench_stacks.py. */
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
	/*
	 * After two timed-out sleeps (2 x 5 ms) the holder has seen gil_drop_request and is in C
	 * code: no need to walk the holder again.
	 */
	GIL_STACK_SAMPLES = 2,
	/* Limit for a holder that ran at each attempt. */
	GIL_STACK_TRIES = 8,
	/* Waiters reuse a stack of the same holder that is at most this old. */
	GIL_STACK_SHARED_NS = 1000000,
	/* Upper bound of the time from a switch in to user mode, interrupts included. */
	GIL_RESUME_NS = 20000,
	/* Upper bound of sizeof(struct _gil_runtime_state). */
	GIL_BYTES = 256,
};

/*
 * Walks happen during a hand-over, while no thread has the GIL, so the process loses the time that
 * a walk takes. A token bucket per GIL limits the cost. Long waits, which are rare, always get
 * stacks.
 */
volatile __u64 gil_stack_share_ppm =
	0; /* 0: no limit; user space may change the value at any time */
enum { GIL_STACK_LONG_NS = 10000000 };

/* Not inlined: the caller has little BPF stack left (512 bytes per call chain). */
static __noinline bool gil_stacks_affordable(struct gil_history *history, struct gil_wait *w,
					     __u64 now)
{
	__u64 ppm = gil_stack_share_ppm;

	return !history || !ppm || now - w->start_ns >= GIL_STACK_LONG_NS ||
	       token_bucket_has_tokens(&history->stacks, ppm, now);
}

static __always_inline bool gil_stacks_wanted(const struct gil_wait *w, __u64 now)
{
	return w->start_ns && now > w->start_ns && now - w->start_ns >= gil_stack_min_ns;
}

/* Keeps the stack of the last walk. Returns the key, 0 when there is no stack. */
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
 * Walks the stack of `tstate`, owned by the thread `ident` of the current process. Returns 0 or the
 * reason why there is no stack. Global: see python/threads.bpf.h.
 */
__noinline int gil_take_holder_stack(__u32 slot, __u64 tstate, __u64 ident)
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
	/* the current thread cannot run Python during the walk */
	if (task_ident((struct task_struct *)bpf_get_current_task()) != ident &&
	    (!python_stack_unchanged(slot) || read_user_u64(tstate + o->tstate_thread_id) != ident))
		return STAT_STACK_MOVED;
	return 0;
}

/*
 * The key of a stack that another waiter took of the same holder shortly before, but after the
 * start of the present wait; 0: none.
 */
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

static __always_inline void gil_sample_holder(struct python_walk *walk, struct gil_wait *w,
					      __u32 slot, struct gil_history *history,
					      __u64 at_offset, __u64 now)
{
	__u64 tstate = w->holder_tstate, ident = w->holders[0].ident, key;
	__u8 missed = STAT_STACK_STATE;

	/* the thread may have ended and its memory may have been reused */
	if (!tstate || !ident || read_user_u64(tstate + at_offset) != ident)
		goto missed;
	key = gil_shared_holder(history, w, now);
	if (key) {
		w->holder_stack = key;
		w->holder_frame.code = 0; /* unknown: the next sample walks the stack again */
		return;
	}
	walk->tstate = tstate;
	/* most long holders stay in a single call */
	if (w->holder_stack && python_at_same_instruction(slot, &w->holder_frame))
		return;
	missed = gil_take_holder_stack(slot, tstate, ident);
	if (missed)
		goto missed;
	key = gil_keep_stack(walk, &missed);
	if (!key)
		goto missed;
	w->holder_stack = key;
	w->holder_frame = walk->stack.frames[0];
	if (history)
		history->sample = (struct gil_sample){ now, tstate, key, now ^ tstate ^ key };
	return;
missed:
	if (!w->holder_stack)
		w->holder_missed = missed;
}

static __always_inline void gil_take_stacks(struct task_struct *waiter, struct thread *t,
					    __u32 slot)
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
	walk->generation++;
	if (!w->stack) {
		walk->ident = task_ident(waiter);
		walk->ns_tid = typed_task_ns_id(waiter);
		python_find_tstate(slot);
		python_take_stack(slot);
		w->stack = gil_keep_stack(walk, &w->missed);
	}
	gil_sample_holder(walk, w, slot, history, o->tstate_thread_id, begin);
	ns = bpf_ktime_get_ns() - begin;
	if (history)
		token_bucket_take(&history->stacks, ns);
	count_add(&cost->takes, 1);
	count_add(&cost->ns, ns);
}

/* The current thread, a waiter, goes back to sleep. Global: the verifier explores it once. */
__noinline int gil_stacks_of_sleeper(void)
{
	struct task_struct *task = current_task();
	struct thread *t = thread_find(task);
	bool whole;

	if (!t)
		return 0;
	whole = t->gil.stack && t->gil.holder_stack;
	if (t->gil.samples < (whole ? GIL_STACK_SAMPLES : GIL_STACK_TRIES) &&
	    (!whole || t->gil.n_holders == 1))
		gil_take_stacks(task, t, PYTHON_SLOT_SCHED);
	return 0;
}

static __always_inline void gil_stacks_at_sleep(const struct gil_wait *w, __u64 now)
{
	if (gil_stacks_wanted(w, now))
		gil_stacks_of_sleeper();
}

/* The waiter is woken because the GIL is free. */
static __always_inline void gil_stacks_at_wake(struct task_struct *task, struct thread *t,
					       __u64 now)
{
	if ((!t->gil.stack || !t->gil.holder_stack) && gil_stacks_wanted(&t->gil, now))
		gil_take_stacks(task, t, PYTHON_SLOT_SCHED);
}

static __always_inline void gil_clear_stacks(struct gil_wait *w)
{
	w->stack = w->holder_stack = 0;
	w->samples = w->missed = w->holder_missed = 0;
}

/*
 * Is the thread resuming from the sleep that ended the wait? Otherwise the thread took the GIL, ran
 * on and was preempted elsewhere, or is leaving a different system call: the wait is over although
 * not reported, and the present stack is not the stack of the wait.
 */
static __always_inline bool gil_resumes(struct task_struct *task, struct thread *t, __u64 now)
{
	struct user_call call;

	if (t->gil.end_ns != t->on_ns)
		return false;
	task_user_call(task, &call);
	if (call.nr == NR_futex)
		return call.arg1 - t->gil.gil < GIL_BYTES;
	return call.nr < 0 && now - t->on_ns < GIL_RESUME_NS; /* preempted in take_gil() */
}

/* The same before the thread resumes: is its open wait to have a stack then? */
static __always_inline bool gil_wants_stack(const struct gil_wait *w)
{
	return !w->stack && w->samples < GIL_STACK_TRIES && gil_stacks_wanted(w, w->end_ns);
}

/* Is there anything to do for the open wait of a thread that resumes? */
static __always_inline bool gil_wants_resume(const struct gil_wait *w)
{
	return w->start_ns && !w->word && (!w->woken || gil_wants_stack(w));
}

/*
 * The waiter resumes after a timeout or after a long time in the run queue, before user mode. The
 * GIL may be free by then.
 */
static __always_inline void gil_stacks_at_resume(struct task_struct *task, struct thread *t,
						 __u64 now)
{
	struct gil_wait *w = &t->gil;
	__u64 start = w->start_ns;

	if (w->word || !gil_wants_stack(w) || !gil_resumes(task, t, now))
		return;
	gil_take_stacks(task, t, PYTHON_SLOT_RESUME);
	if (w->start_ns !=
	    start) /* the thread was preempted during the walk, which ended the wait */
		gil_clear_stacks(w);
}

/* ---- the row ---- */

static __always_inline void gil_stack_missing(__u8 why)
{
	stat_add_in(&gil_wait_stats, why ?: STAT_STACK_LATE, 1);
}

/* Appends the stack with the given key; returns the new number of frames. */
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

/* Sends the row in gil_row. */
__noinline int gil_send_row(__u64 stack, __u64 holder_stack)
{
	__u32 zero = 0, n = 0;
	struct gil_wait_with_stacks *row = bpf_map_lookup_elem(&gil_row, &zero);
	struct gil_stack_cost *cost = bpf_map_lookup_elem(&gil_stack_cost, &zero);

	if (!row)
		return 0;
	if (cost && stack && holder_stack)
		count_add(&cost->rows, 1);
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
