// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The scheduler's path, shared by the trackers gil_wait, off_cpu and request. All follow a thread
 * from the switch out through the wake-up to the switch in. Every process of the host pays for a
 * context switch, so there is a single program per tracepoint and a single record per thread
 * (sched/thread.bpf.h). Each tracker has its own ring buffer, counters and sums; the verifier
 * removes the part of a disabled tracker.
 *
 * Two methods of gil_wait have programs of their own, loaded on demand: gil_wait/callsite.bpf.h,
 * and gil_wait/uprobe.bpf.h as the reference.
 */
#define TRACKERS_SHARE_THIS_OBJECT
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "lib/compat.bpf.h"
#include "sched/thread.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#include "gil_wait/wait.bpf.h"
#include "gil_wait/callsite.bpf.h"
#include "gil_wait/uprobe.bpf.h"
#include "off_cpu/interval.bpf.h"
#include "sched/switch.bpf.h"
#include "sched/resume.bpf.h"
#include "request/request.bpf.h"

/* ---- a context switch ---- */

/*
 * A stopped call goes on as restart_syscall(), with the same registers of arguments: it is the
 * thread's last call that slept.
 */
static __always_inline void call_goes_on(struct off_cpu *off, struct user_call *call, __u32 state)
{
	if (call->nr == NR_restart_syscall)
		call->nr = off->slept_in;
	else if (state && call->nr >= 0)
		off->slept_in = call->nr;
}

/*
 * Find the thread, close an interval whose end was not seen, then each tracker's part. gil_wait is
 * first, because waits for the GIL are a cause of their own.
 */
static __always_inline void switch_out(struct task_struct *task, bool preempt, __u64 now)
{
	struct thread *t = thread_find(task);
	struct user_call call;
	bool gil = false, examined;
	__u8 idle = 0;
	__u32 state;

	if (!t) {
		t = thread_follow(task);
		if (!t)
			return;
	}
	close_unseen(task, t, now);
	if (request_measures() && request_has_lengths && t->request.watches)
		request_unix_look(t, false);
	if (task->flags & PF_EXITING) { /* see sched_exit() */
		t->off_ns = 0;
		return;
	}
	state = preempt ? 0 : task_state(task);
	if (bpf_core_field_exists(task->frozen))
		state = state_if_frozen(state, BPF_CORE_READ_BITFIELD(task, frozen));
	t->state = state;
	/* read back: any number to the verifier, which explores what follows once */
	state = *(volatile __u64 *)&t->state;
	if (t->off_cpu_deferred) /* not in user mode since: same Python stack */
		off_cpu_finish_deferred(t, true, PYTHON_SLOT_SCHED);
	thread_leaves(task, t, now);
	task_user_call(task, &call);
	call_goes_on(&t->off, &call, state);
	if (gil_wait_runs)
		gil = gil_switch_out(task, t, &call, state, now);
	examined = off_cpu_runs && !off_cpu_leave_out(&t->off);
	if (!examined && !request_measures())
		return;
	if (task->flags &
	    (PF_IO_WORKER | PF_USER_WORKER | PF_KTHREAD)) /* all registers 0: would be read() */
		call.nr = NR_KERNEL_THREAD;
	t->off.cause = off_cpu_cause(task, &call, state, gil, &idle);
	t->off.idle = idle;
	t->off.syscall = call.nr;
	/* read back, as the cause is: see off_cpu_cause_of() */
	call.nr = *(volatile __s16 *)&t->off.syscall;
	if (request_measures()) {
		request_switch_out(task, t, &call, now);
		if (t->request.ended)
			request_pool_rests(now);
	}
	if (examined)
		off_cpu_switch_out(task, t, &call, state, now);
}

static __always_inline void switch_in(struct task_struct *task, struct thread *t, __u64 now)
{
	if (!t)
		return;
	if (t->off_ns) {
		if (request_measures())
			request_switch_in(task, t, now);
		if (gil_wait_runs)
			gil_switch_in(task, t, now);
		if (off_cpu_runs)
			off_cpu_switch_in(task, t, now, false);
	} else if (t->request.given == REQUEST_GIVEN && request_measures()) {
		request_first_runs(t, now);
	}
	thread_enters(t, now);
}

/* In the context of `prev`, with interrupts off and the run queue locked. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *t = NULL;
	__u64 now = 0;

	if (gil_end_ns || sched_out)
		return 0;
	if (thread_may_be_followed(prev)) {
		now = bpf_ktime_get_ns();
		switch_out(prev, preempt, now);
	}
	/* after switch_out(): asked before it, the verifier would explore switch_out() twice */
	if (thread_may_be_followed(next)) {
		now = now ?: bpf_ktime_get_ns();
		t = thread_find(next);
		switch_in(next, t, now);
	}
	expect_resume(t);
	return 0;
}

/* In the waker, or in an interrupt on an unrelated thread. */
SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread *t;

	if (gil_end_ns || sched_out || !thread_may_be_followed(task))
		return 0;
	t = thread_find(task);
	if (!t)
		return 0;
	t->wake_ns = bpf_ktime_get_ns();
	if (gil_wait_runs)
		gil_woken(task, t, t->wake_ns);
	if (off_cpu_runs)
		off_cpu_woken(task, t, t->wake_ns);
	if (request_measures())
		request_woken(task, t, t->wake_ns);
	return 0;
}

/* ---- resuming before user mode: the kernel has at least one of three hooks ---- */

/*
 * include/trace/events/sched.h: at the end of __schedule(), in the context of the resuming thread.
 */
SEC("?tp_btf/sched_exit_tp")
int BPF_PROG(sched_exit_tp, bool is_switch)
{
	__u32 zero = 0;
	__u64 *resume_wanted = bpf_map_lookup_elem(&sched_resume_wanted, &zero);

	if (is_switch && resume_wanted && *resume_wanted)
		resume_to_user(current_task());
	return 0;
}

/* include/trace/events/rseq.h: after a switch, in the thread's own context */
SEC("?tp_btf/rseq_update")
int BPF_PROG(sched_rseq_update, struct task_struct *task)
{
	resume_to_user(task);
	return 0;
}

/* At the end of a system call; attached on demand, see src/trackers/sched_return.c. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(sched_sys_exit, struct pt_regs *regs, long ret)
{
	if (off_cpu_deferred_n)
		resume_to_user(current_task());
	return 0;
}

/* ---- life ---- */

/* last, for the order of the programs in the object */
#include "sched/life.bpf.h"
