/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A thread resumes after being off the CPU: on the CPU, in kernel mode. At this point the Python
 * stack can be walked.
 */
#ifndef UNDERSPAN_SCHED_RESUME_BPF_H
#define UNDERSPAN_SCHED_RESUME_BPF_H

#include "gil_wait/wait.bpf.h"
#include "off_cpu/python_stack.bpf.h"
#include "sched/thread.bpf.h"

/* 1: the thread switched to on this CPU needs a walk on leaving the scheduler. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sched_resume_wanted SEC(".maps");

static __always_inline bool thread_wants_walk(const struct thread *t)
{
	return t && (t->off_cpu_deferred || (gil_wait_runs && gil_wants_resume(&t->gil)));
}

static __always_inline void expect_resume(const struct thread *t)
{
	__u32 zero = 0;
	__u64 *resume_wanted = has_sched_exit ? bpf_map_lookup_elem(&sched_resume_wanted, &zero)
					      : NULL;

	if (resume_wanted)
		*resume_wanted = thread_wants_walk(t);
}

bool stopping; /* set by user space: the agent stops, no more rows */

/* Number of walks in progress on this CPU: a walk may be preempted, and a second walk begin. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sched_resuming SEC(".maps");

static __noinline void thread_resumes(struct task_struct *task, struct thread *t, __u64 now)
{
	__u32 zero = 0;
	__u64 *users = bpf_map_lookup_elem(&sched_resuming, &zero);
	bool alone;

	if (!users)
		return;
	__sync_fetch_and_add(users, 1);
	alone = *(volatile __u64 *)users == 1;
	if (gil_wait_runs && alone)
		gil_stacks_at_resume(task, t, now);
	if (gil_wait_runs)
		gil_timed_out();
	if (t->off_cpu_deferred)
		off_cpu_finish_deferred(t, alone, PYTHON_SLOT_RESUME);
	__sync_fetch_and_add(users, -1);
}

static __always_inline void resume_to_user(struct task_struct *task)
{
	struct thread *t = thread_find(task);

	if (thread_wants_walk(t) && !stopping && !sched_out)
		thread_resumes(task, t, bpf_ktime_get_ns());
}

#endif
