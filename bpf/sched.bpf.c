// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The scheduler's path, shared by two trackers: gil_wait (lib/gil_wait.bpf.h) and off_cpu
 * (lib/off_cpu.bpf.h). Both follow a thread from the switch that takes it off its CPU, through
 * its wake-up, to the switch that brings it back. A context switch costs every process of the
 * host, so it is looked at once: one program a tracepoint, one record a thread (lib/thread.bpf.h).
 * Each tracker has its own ring buffer, counters and sums; either one can be off, and the
 * verifier then removes its part. gil_wait has two methods with programs of their own, loaded
 * only when they are used: lib/gil_callsite.bpf.h, and lib/gil_uprobe.bpf.h as the reference.
 */
#define TRACKERS_SHARE_THIS_OBJECT
#include "underspan.bpf.h"
#include "compat.bpf.h"
#include "thread.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#include "gil_wait.bpf.h"
#include "gil_callsite.bpf.h"
#include "gil_uprobe.bpf.h"
#include "off_cpu.bpf.h"

/* off_cpu of other than tracked processes: everything, or one cgroup and what is below it */
const volatile bool off_cpu_all = false;
const volatile __u64 off_cpu_cgroup_id = 0;
const volatile __u32 off_cpu_cgroup_level = 0;

enum { PF_EXITING = 4 };

/* Is this switched-out thread, the current one, one to follow? */
static __always_inline bool thread_wanted(struct task_struct *task)
{
	if (!task->pid || task->flags & PF_EXITING)
		return false;
	if (process_tracked(task->tgid))
		return true;
	if (!off_cpu_runs)
		return false;
	return off_cpu_all ||
	       (off_cpu_cgroup_id &&
		bpf_get_current_ancestor_cgroup_id(off_cpu_cgroup_level) == off_cpu_cgroup_id);
}

/*
 * The thread is switched out, but was never seen to come back: some kernels for virtual machines
 * do not trace what happens while a thread of the machine's own manager is current. The scheduler
 * counts how long it ran, so it is known when it came back.
 */
static __noinline __u64 gil_back_unseen(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 ran = task->se.sum_exec_runtime - t->exec_ns;
	__u64 end = ran < now - t->off_ns ? now - ran : 0;

	if (t->wake_ns > end)
		t->wake_ns = 0;
	if (gil_wait_runs)
		gil_switch_in(task, t, end);
	return end;
}

/* Beside the other and not around it: 512 bytes of stack is what a chain of calls has. */
static __noinline void off_cpu_back_unseen(struct task_struct *task, struct thread *t, __u64 end)
{
	if (off_cpu_runs && end)
		off_cpu_switch_in(task, t, end, true);
	else if (off_cpu_runs)
		off_cpu_lost();
	t->on_ns = end;
}

/* It came back unseen and ends without another switch, so nobody knows when. */
static __always_inline void ends_after_unseen(struct thread *t)
{
	if (t->off_ns && off_cpu_runs)
		off_cpu_lost();
	t->off_ns = 0;
}

static __always_inline void switch_out(struct task_struct *task, bool preempt, __u64 now)
{
	struct thread *t = thread_find(task);
	struct user_call call;
	bool gil = false;
	__u32 state;

	if (!t) {
		if (!thread_wanted(task))
			return;
		t = thread_create(task);
		if (!t) {
			if (gil_wait_runs)
				gil_lost();
			if (off_cpu_runs)
				off_cpu_lost();
			return;
		}
	}
	if (t->off_ns)
		off_cpu_back_unseen(task, t, gil_back_unseen(task, t, now));
	if (task->flags & PF_EXITING) { /* see sched_exit() */
		t->off_ns = 0;
		return;
	}
	state = preempt ? 0 : task_state(task);
	if (t->off_cpu_late) /* it has not been in user mode since: in Python, nothing changed */
		off_cpu_report_late(t, true, PYTHON_SLOT_SCHED);
	/* a wake-up can be traced just before the switch that it ends; older ones are history */
	if (now - t->wake_ns > 10000)
		t->wake_ns = 0;
	if (t->on_ns)
		t->gil.gap_ns += now - t->on_ns;
	t->off_ns = now;
	t->exec_ns = task->se.sum_exec_runtime;
	task_user_call(task, &call);
	if (gil_wait_runs) {
		if (!t->thread_pointer)
			gil_name_thread(task, t);
		if (state)
			gil = gil_switch_out(task, t, &call, now);
		else
			gil_preempted(task, t, &call);
	}
	if (off_cpu_runs)
		off_cpu_switch_out(task, t, &call, state, gil);
}

/* Is the thread that this CPU switched to one to look at when it leaves the scheduler? */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sched_comes_back SEC(".maps");

static __always_inline bool wanted_back(const struct thread *t)
{
	return t && (t->off_cpu_late || t->gil.start_ns);
}

static __always_inline void expect_back(const struct thread *t)
{
	__u32 zero = 0;
	__u64 *comes_back = has_sched_exit ? bpf_map_lookup_elem(&sched_comes_back, &zero) : NULL;

	if (comes_back)
		*comes_back = wanted_back(t);
}

static __always_inline void switch_in(struct task_struct *task, struct thread *t, __u64 now)
{
	if (!t)
		return;
	if (t->off_ns) {
		if (gil_wait_runs)
			gil_switch_in(task, t, now);
		if (off_cpu_runs)
			off_cpu_switch_in(task, t, now, false);
	}
	t->off_ns = 0;
	t->wake_ns = 0;
	t->on_ns = now;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *t;

	if (gil_end_ns)
		return 0;
	switch_out(prev, preempt, now);
	t = thread_find(next);
	switch_in(next, t, now);
	expect_back(t);
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread *t = gil_end_ns ? NULL : thread_find(task);

	if (!t)
		return 0;
	t->wake_ns = bpf_ktime_get_ns();
	if (gil_wait_runs)
		gil_woken(task, t, t->wake_ns);
	if (off_cpu_runs)
		off_cpu_woken(task, t, t->wake_ns);
	return 0;
}

/* ---- in a context of its own, and not in user mode yet ---- */

bool stopping; /* set by user space: nothing more may come of it */

/* How many are at it on this CPU: one may be preempted, and another one come. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sched_returning SEC(".maps");

static __noinline void returns(struct task_struct *task, struct thread *t, __u64 now)
{
	__u32 zero = 0;
	__u64 *users = bpf_map_lookup_elem(&sched_returning, &zero);
	bool alone;

	if (!users)
		return;
	__sync_fetch_and_add(users, 1);
	alone = *(volatile __u64 *)users == 1;
	if (gil_wait_runs && alone)
		gil_stacks_at_return(task, t, now);
	if (t->off_cpu_late)
		off_cpu_report_late(t, alone, PYTHON_SLOT_RETURN);
	__sync_fetch_and_add(users, -1);
}

static __always_inline void return_to_user(struct task_struct *task)
{
	struct thread *t = thread_find(task);

	if (wanted_back(t) && !stopping)
		returns(task, t, bpf_ktime_get_ns());
}

/* include/trace/events/sched.h: at the end of __schedule(), in the context of who it returns to */
SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit_tp, bool is_switch)
{
	__u32 zero = 0;
	__u64 *comes_back = bpf_map_lookup_elem(&sched_comes_back, &zero);

	if (is_switch && comes_back && *comes_back)
		return_to_user(current_task());
	return 0;
}

/* include/trace/events/rseq.h: after a switch, in the thread's own context */
SEC("?tp_btf/rseq_update")
int BPF_PROG(sched_rseq_update, struct task_struct *task)
{
	return_to_user(task);
	return 0;
}

/* Attached when a thread needs it, see src/trackers/sched_return.c. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(sched_sys_exit, struct pt_regs *regs, long ret)
{
	if (off_cpu_late_n)
		return_to_user(current_task());
	return 0;
}

/* ---- life ---- */

/* The child is a copy: its interpreter lies where the parent's does. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	struct gil_process *inherited;

	if (tgid == parent_tgid)
		return 0;
	inherited = bpf_map_lookup_elem(&gil_processes, &parent_tgid);
	if (inherited && bpf_map_update_elem(&gil_processes, &tgid, inherited, BPF_ANY))
		gil_lost();
	return 0;
}

/* Another program: nothing lies where it did, and it may not be tracked any more. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_exec, struct task_struct *task)
{
	struct thread *t = thread_find(task);
	__u32 tgid = task->tgid;

	if (t)
		ends_after_unseen(t);
	if (t && t->off_cpu_late)
		off_cpu_report_late(t, false, PYTHON_SLOT_SCHED);
	bpf_map_delete_elem(&gil_processes, &tgid);
	thread_delete(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_exit, struct task_struct *task)
{
	struct thread *t = thread_find(task);
	__u32 tgid = task->tgid;

	if (t) {
		ends_after_unseen(t);
		if (gil_wait_runs && gil_end_ns)
			gil_wait_end(task, t, gil_end_ns);
		else if (gil_wait_runs)
			gil_wait_close(t);
		if (t->off_cpu_late)
			off_cpu_report_late(t, false, PYTHON_SLOT_SCHED);
		thread_delete(task);
	}
	if (gil_callsite_runs)
		gil_call_end(task, gil_end_ns ?: bpf_ktime_get_ns());
	/* fires for each thread; do_exit() has already counted this one off */
	if (BPF_CORE_READ(task, signal, live.counter) <= 0)
		bpf_map_delete_elem(&gil_processes, &tgid);
	return 0;
}

/* Once, when the agent stops and nothing else of this object runs any more: waits end there. */
SEC("?iter/task")
int gil_end_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *t;

	if (!task)
		return 0;
	if (gil_callsite_runs)
		gil_call_end(task, gil_end_ns);
	t = gil_wait_runs ? thread_find(task) : NULL;
	if (t)
		gil_wait_end(task, t, gil_end_ns);
	return 0;
}
