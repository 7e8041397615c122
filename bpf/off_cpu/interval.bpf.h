/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Intervals off the CPU: cause, duration, time in the run queue, and waker. The user stack is taken
 * at the switch out, the last time at which the thread's memory can be read, or when the thread
 * resumes; the kernel stack at the switch in, and only for rows. Stacks travel inside the event or
 * the sum, so no separate map of stacks can fill up.
 */
#ifndef UNDERSPAN_OFF_CPU_INTERVAL_BPF_H
#define UNDERSPAN_OFF_CPU_INTERVAL_BPF_H

#include "off_cpu/cause.bpf.h"
#include "off_cpu/lock.bpf.h"
#include "off_cpu/profile.bpf.h"
#include "off_cpu/python_stack.bpf.h"
#include "off_cpu/user_stack.bpf.h"
#include "off_cpu/waker.bpf.h"
#include "sched/thread.bpf.h"

/*
 * Sampling before any work: at very high switch rates even classifying a switch is too expensive,
 * so the governor picks a random subset of switches, or none.
 */
static __always_inline bool off_cpu_leave_out(struct off_cpu *off)
{
	struct sampling *sampling;
	__u32 zero = 0, shift = 0;

	if (off_cpu_out) {
		off->left_out = OFF_CPU_NOT_MEASURED;
		return true;
	}
	sampling = bpf_map_lookup_elem(&off_cpu_sampling, &zero);

	if (sampling)
		shift = sampling->skip_shift & 31;
	off->skip_shift = shift;
	off->left_out = shift && bpf_get_prandom_u32() << (32 - shift) ? OFF_CPU_SAMPLED
								       : OFF_CPU_EXAMINED;
	return off->left_out;
}

/* Why the thread leaves the CPU: enum off_cpu_cause. */
static __always_inline __u8 off_cpu_cause(struct task_struct *task, struct user_call *call,
					  __u32 state, bool gil, __u8 *ret_idle)
{
	__u8 cause;

	if (!state)
		return OFF_CPU_CAUSE_preempt;
	if (gil)
		return OFF_CPU_CAUSE_gil;
	/* within a call or not */
	if (state & TASK_HELD)
		return OFF_CPU_CAUSE_other;
	cause = cause_of_call(task, call, state, ret_idle);
	if (cause == OFF_CPU_CAUSE_lock)
		*ret_idle = call->nr == NR_futex &&
			    (call->arg2 & FUTEX_CMD_MASK) == FUTEX_CMD_WAIT_BITSET;
	if (cause == OFF_CPU_CAUSE_other && (state & TASK_UNINTERRUPTIBLE)) {
		if (call->nr < 0 && call->nr != NR_KERNEL_THREAD)
			return OFF_CPU_CAUSE_page_fault;
		if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
			return OFF_CPU_CAUSE_disk;
	}
	return cause;
}

/*
 * A native stack of up to 32 frames costs 0.1 to 1 us. A thread with more than a thousand switches
 * a second has a stack at as many of them, a token bucket as a time; rows and samples of its other
 * intervals take theirs when the thread resumes, see off_cpu/python_stack.bpf.h.
 */
enum { USER_STACK_EVERY_NS = 1000000, USER_STACK_BURST = 64 };

static __always_inline bool user_stack_due(struct thread *t, __u64 now)
{
	__u64 earliest = now - USER_STACK_BURST * USER_STACK_EVERY_NS, paid = t->user_stack_paid_ns;

	if (!off_cpu_user_stacks || (t->off_cpu_resumes && paid > now))
		return false;
	t->user_stack_paid_ns = (paid > earliest ? paid : earliest) + USER_STACK_EVERY_NS;
	return true;
}

/* The current thread's native stack. Global: explored by the verifier once. */
__noinline int off_cpu_take_stack_now(void)
{
	struct task_struct *task = current_task();
	struct thread *t = thread_find(task);

	if (t)
		t->off.user_hash = user_stack(task, t->off.user, OFF_CPU_USER_FRAMES);
	return 0;
}

static __always_inline void off_cpu_switch_out(struct task_struct *task, struct thread *t,
					       struct user_call *call, __u32 state, __u64 now)
{
	struct off_cpu *off = &t->off;

	off->waker_user[0] = 0;
	off->state = state_letter(state);
	t->futex = state && call->nr == NR_futex && call->arg2 & FUTEX_PRIVATE ? call->arg1 : 0;
	off->lock = state & TASK_INTERRUPTIBLE && off_cpu_cause_of(off) == OFF_CPU_CAUSE_lock
			    ? off_cpu_lock(task, call)
			    : 0;
	/* keep the waker of a wake-up traced just before, if the waker can end such a sleep */
	if (!t->wake_ns ||
	    !waker_fits(t, task->tgid, off->waker_syscall, off->waker.host_pid, t->waker_futex))
		off->waker.host_tid = 0; /* none; the rest: see waker_read() */
	off->user_hash = 0;
	off->user[0] = 0;
	if (user_stack_due(t, now))
		off_cpu_take_stack_now();
	/* the place of a preemption is random: summed without the native stack */
	if (!state)
		off->user_hash = 0;
}

/* The thread is switched in. `unseen`: long ago, so the kernel stack has changed since. */
static __always_inline void off_cpu_switch_in(struct task_struct *task, struct thread *t, __u64 end,
					      bool unseen)
{
	__u64 ns = end - t->off_ns, runq_ns = 0, without_stack;
	struct off_cpu_event *event;

	if (t->off.left_out) {
		if (t->off.left_out == OFF_CPU_SAMPLED) {
			off_cpu_stat(STAT_SEEN, 1);
			off_cpu_stat(STAT_SAMPLED, 1);
		}
		t->off.left_out = OFF_CPU_EXAMINED;
		return;
	}
	if (t->off.cause == OFF_CPU_CAUSE_preempt)
		runq_ns = ns;
	else if (t->wake_ns)
		runq_ns = end - (t->wake_ns > t->off_ns ? t->wake_ns : t->off_ns);
	without_stack = off_cpu_profile_add(task, t, ns, runq_ns, unseen);
	if (ns >= off_cpu_min_ns && !unseen &&
	    off_cpu_defer(task, t, end, runq_ns, OFF_CPU_DEFERRED_ROW))
		return;
	off_cpu_stat(STAT_SEEN, 1);
	if (ns < off_cpu_min_ns) {
		off_cpu_stat(STAT_FILTERED, 1);
		if (!unseen && off_cpu_sample_due(t, without_stack, end))
			off_cpu_defer(task, t, end, runq_ns, OFF_CPU_DEFERRED_SAMPLE);
		return;
	}
	event = event_reserve_in(&off_cpu_events, &off_cpu_stats, sizeof(*event));
	if (!event)
		return;
	off_cpu_fill(event, task, t, unseen);
	event->header.start_ns = t->off_ns;
	event->header.end_ns = end;
	event->header.skip_shift = t->off.skip_shift;
	event->runq_ns = runq_ns;
	event_submit_in(&off_cpu_events, &off_cpu_stats, &off_cpu_sampling, event);
}

#endif
