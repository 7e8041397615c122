/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts of a context switch that belong to no single tracker: the choice of followed threads,
 * and switches in without a tracepoint.
 */
#ifndef UNDERSPAN_SCHED_SWITCH_BPF_H
#define UNDERSPAN_SCHED_SWITCH_BPF_H

#include "gil_wait/wait.bpf.h"
#include "off_cpu/interval.bpf.h"
#include "request/sums.bpf.h"
#include "sched/thread.bpf.h"

/* scope of off_cpu beyond tracked processes: all processes, or a cgroup and its descendants */
const volatile bool off_cpu_all = false;
const volatile __u64 off_cpu_cgroup_id = 0;
const volatile __u32 off_cpu_cgroup_level = 0;

/*
 * False: the thread has no record and will have none. Decided by one load for nearly all threads of
 * the host; every switch and every wake-up asks.
 */
static __always_inline bool thread_may_be_followed(const struct task_struct *task)
{
	return (off_cpu_runs && (off_cpu_all || off_cpu_cgroup_id)) ||
	       process_may_be_known(task->tgid);
}

/* Is the switched-out thread (the current thread) to be followed? */
static __always_inline bool thread_wanted(struct task_struct *task)
{
	const struct process_info *info;
	__u32 tgid = task->tgid;

	if (!task->pid || task->flags & PF_EXITING)
		return false;
	info = process_find(tgid);
	if (info_is_tracked(info))
		return true;
	if (!off_cpu_runs || (info && info->flags == PROCESS_OWN))
		return false;
	return off_cpu_all ||
	       (off_cpu_cgroup_id &&
		bpf_get_current_ancestor_cgroup_id(off_cpu_cgroup_level) == off_cpu_cgroup_id);
}

/* Creates the record of a switched-out thread; NULL: the thread is not followed. */
static __always_inline struct thread *thread_follow(struct task_struct *task)
{
	struct thread *t;

	if (!thread_wanted(task))
		return NULL;
	t = thread_create(task);
	if (!t) {
		if (gil_wait_runs && !gil_wait_out)
			gil_lost();
		if (off_cpu_runs && !off_cpu_out)
			off_cpu_lost();
		return NULL;
	}
	return t;
}

/* Read from memory, the time is any number to the verifier, which explores what follows once. */
static __always_inline __u64 unseen_end_ns(struct thread *t)
{
	return *(volatile __u64 *)&t->on_ns;
}

/*
 * The thread is switched out although its switch in was not seen: some virtualization kernels run
 * no tracepoints while a thread of the hypervisor's agent is current. sum_exec_runtime says how
 * long the thread ran, hence when the switch in happened; 0: not known.
 */
static __always_inline void find_unseen_end(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 ran = task->se.sum_exec_runtime - t->exec_ns;

	t->on_ns = ran < now - t->off_ns ? now - ran : 0;
	if (t->wake_ns > t->on_ns)
		t->wake_ns = 0;
}

/* The end of the interval is not known. */
static __always_inline void off_cpu_open_lost(struct thread *t)
{
	if (off_cpu_runs && t->off.left_out != OFF_CPU_NOT_MEASURED)
		off_cpu_lost();
	t->off.left_out = OFF_CPU_EXAMINED;
}

/* The parts of gil_wait and request. */
static __noinline void gil_close_unseen(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 end;

	find_unseen_end(task, t, now);
	end = unseen_end_ns(t);
	if (request_measures() && end)
		request_switch_in(task, t, end);
	if (gil_wait_runs)
		gil_switch_in(task, t, unseen_end_ns(t));
}

/* A sibling of gil_close_unseen() and not its caller: a call chain has 512 bytes of BPF stack. */
static __noinline void off_cpu_close_unseen(struct task_struct *task, struct thread *t)
{
	__u64 end = unseen_end_ns(t);

	if (off_cpu_runs && end)
		off_cpu_switch_in(task, t, end, true);
	else
		off_cpu_open_lost(t);
}

static __always_inline void close_unseen(struct task_struct *task, struct thread *t, __u64 now)
{
	if (!t->off_ns)
		return;
	gil_close_unseen(task, t, now);
	off_cpu_close_unseen(task, t);
}

/* The thread ends after an unseen switch in: the end of the interval is unknown. */
static __always_inline void thread_ends_unseen(struct thread *t)
{
	if (t->off_ns)
		off_cpu_open_lost(t);
	t->off_ns = 0;
}

#endif
