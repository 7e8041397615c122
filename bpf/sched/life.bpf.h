/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The life of threads and processes for the trackers of sched.bpf.c: fork, exec, exit; and the ends
 * set by user space, the agent's stop and a gap by the governor.
 */
#ifndef UNDERSPAN_SCHED_LIFE_BPF_H
#define UNDERSPAN_SCHED_LIFE_BPF_H

#include "gil_wait/callsite.bpf.h"
#include "gil_wait/wait.bpf.h"
#include "off_cpu/python_stack.bpf.h"
#include "request/request.bpf.h"
#include "sched/switch.bpf.h"
#include "sched/thread.bpf.h"

/* A forked child inherits the GIL addresses: its memory is a copy of the parent's. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	struct gil_process *inherited;

	if (!has_task_storage) /* key reused from an unseen exit */
		thread_delete(child);
	if (tgid == parent_tgid) {
		if (request_runs && thread_may_be_followed(child))
			request_creates(child);
		return 0;
	}
	inherited = bpf_map_lookup_elem(&gil_processes, &parent_tgid);
	if (inherited && bpf_map_update_elem(&gil_processes, &tgid, inherited, BPF_ANY))
		gil_lost();
	return 0;
}

/* The process runs a new program: its GILs are gone, and tracking may end. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_exec, struct task_struct *task)
{
	struct thread *t = thread_find(task);
	__u32 tgid = task->tgid;

	if (t)
		thread_ends_unseen(t);
	if (t && t->off_cpu_deferred)
		off_cpu_finish_deferred(t, false, PYTHON_SLOT_SCHED);
	if (gil_callsite_runs)
		gil_call_end(task, gil_end_ns ?: bpf_ktime_get_ns());
	bpf_map_delete_elem(&gil_processes, &tgid);
	if (request_runs && t) {
		request_process_renewed(tgid);
		if (t->request.open)
			request_thread_renewed(t);
	}
	thread_delete(task);
	return 0;
}

/* In the exiting thread; its last switch follows. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_exit, struct task_struct *task)
{
	struct thread *t = thread_find(task);
	__u32 tgid = task->tgid;

	if (t) {
		if (request_measures() && request_has_lengths)
			request_unix_thread_ends(task, t);
		if (request_measures() && t->request.open) {
			request_thread_killed(task, t);
			request_thread_busy(tgid, -1);
		}
		/* counted also while the tracker is out: the count of its process goes on */
		if (request_runs && (t->request.giver || t->request.works))
			request_pool_thread_ends(task, t);
		thread_ends_unseen(t);
		if (gil_wait_runs && gil_end_ns)
			gil_wait_end(task, t, gil_end_ns);
		else if (gil_wait_runs)
			gil_wait_close(t);
		if (t->off_cpu_deferred)
			off_cpu_finish_deferred(t, false, PYTHON_SLOT_SCHED);
		thread_delete(task);
	}
	if (gil_callsite_runs)
		gil_call_end(task, gil_end_ns ?: bpf_ktime_get_ns());
	/* runs for each thread; do_exit() has already decremented `live` */
	if (BPF_CORE_READ(task, signal, live.counter) <= 0) {
		bpf_map_delete_elem(&gil_processes, &tgid);
		if (request_runs) {
			request_unix_process_ends(tgid);
			bpf_map_delete_elem(&request_processes, &tgid);
		}
	}
	return 0;
}

/* Run once by user space at the agent's stop, after detaching all programs: ends open waits. */
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

/*
 * Run once by user space before the governor puts a tracker back: what began before the tracker was
 * out must not end now. Programs leave the cleared parts alone as long as request_out or sched_out
 * is set.
 */
SEC("?iter/task")
int sched_forget(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *t = task ? thread_find(task) : NULL;

	if (!t)
		return 0;
	if (request_runs && request_out)
		request_forget(&t->request);
	if (!sched_out)
		return 0;
	thread_ends_unseen(t);
	if (off_cpu_runs)
		off_cpu_drop_deferred(task, t);
	if (gil_wait_runs && t->gil.start_ns)
		gil_lost();
	thread_delete(task);
	return 0;
}

#endif
