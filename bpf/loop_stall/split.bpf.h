/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The split of a stall. A perf event counts the context switches of a loop's thread only, and a
 * program runs at each switch out; no other thread pays. The switch in needs no program: the perf
 * event's own clock runs while the thread is on a CPU, and the kernel counts the time in the run
 * queue, so the rest of the time until the next switch out was the sleep.
 */
#ifndef UNDERSPAN_LOOP_STALL_SPLIT_BPF_H
#define UNDERSPAN_LOOP_STALL_SPLIT_BPF_H

#include "loop_stall/stack.bpf.h"
#include "off_cpu/cause.bpf.h"

static __always_inline bool loop_waits_for_gil(const struct loop_thread *loop,
					       const struct user_call *call)
{
	return loop->gil && call->nr == NR_futex &&
	       call->arg1 - (loop->gil + PYTHON_GIL_COND) < PYTHON_GIL_SIZE - PYTHON_GIL_COND;
}

static __always_inline __u8 loop_part_of(struct task_struct *task, const struct loop_thread *loop,
					 __u32 state)
{
	struct user_call call = {};
	__u8 cause, idle = 0;

	if (bpf_core_field_exists(task->frozen))
		state = state_if_frozen(state, BPF_CORE_READ_BITFIELD_PROBED(task, frozen));
	if (state & TASK_HELD)
		return LOOP_OTHER;
	task_user_call(task, &call);
	if (loop_waits_for_gil(loop, &call))
		return LOOP_GIL;
	cause = cause_of_call(task, &call, state, &idle);
	switch (cause) {
	case OFF_CPU_CAUSE_lock:
		return LOOP_LOCK;
	case OFF_CPU_CAUSE_net:
		return LOOP_NET;
	case OFF_CPU_CAUSE_disk:
		return LOOP_DISK;
	case OFF_CPU_CAUSE_sleep:
		return LOOP_SLEEP;
	case OFF_CPU_CAUSE_other:
		if (state & TASK_UNINTERRUPTIBLE && call.nr >= 0 &&
		    BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
			return LOOP_DISK;
	}
	return LOOP_OTHER;
}

/* Adds the time asleep since the last switch out; `on`: the thread's time on a CPU by now. */
static __always_inline void loop_slept(struct loop_thread *loop, __u64 now, __u64 on, __u64 delay)
{
	__s64 ns = (now - loop->off_ns) - (on - loop->off_on_ns) - (delay - loop->off_delay_ns);
	__u32 part = loop->off_part;

	if (ns > 0 && part < LOOP_PARTS) {
		loop->part_ns[part] += ns;
		if ((__u64)ns > loop->longest_ns) {
			loop->longest_ns = ns;
			loop->longest_at_ns = loop->off_ns;
			loop->longest_slot = loop->off_slot;
			loop->longest_stack = loop->off_stack;
		}
	}
	loop->off_ns = 0;
}

static __always_inline void loop_leaves(struct task_struct *task, struct loop_thread *loop,
					__u32 state, __u64 now, __u64 on)
{
	__u64 delay = run_delay(task);

	if (loop->off_ns)
		loop_slept(loop, now, on, delay);
	loop->off_on_ns = on;
	loop->off_delay_ns = delay;
	/* a preempted thread does not sleep: the time will be found in the run queue */
	loop->off_part = state ? loop_part_of(task, loop, state) : LOOP_PARTS;
	loop->off_slot = loop->longest_slot == LOOP_STACK_SLEEP_A ? LOOP_STACK_SLEEP_B
								  : LOOP_STACK_SLEEP_A;
	loop->off_stack = state && loop_stack_at_switch(loop, loop->off_slot, now);
	loop->off_ns = now;
	if (!state)
		loop_preempted(loop, now);
}

#endif
