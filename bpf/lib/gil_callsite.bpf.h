/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gil_wait where the scheduler does not show what a thread sleeps for: musl's condition variables
 * sleep on the waiter's own stack. Two probes inside take_gil(), at its call of
 * pthread_cond_timedwait() and behind it, which are reached only when the GIL is held by another.
 * Behind the call the thread has the lock of the struct, so what the GIL says is the truth: free
 * means that this thread takes it, and it still names who dropped it.
 */
#ifndef UNDERSPAN_GIL_CALLSITE_BPF_H
#define UNDERSPAN_GIL_CALLSITE_BPF_H

#include "gil_wait.bpf.h"

struct gil_call {
	__u64 since_ns; /* it has been in the call since; 0: it is not */
	__u64 run_delay;
	struct gil_wait wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* host tid */
	__type(value, struct gil_call);
} gil_calls SEC(".maps");

/* Too big for the BPF stack. */
static const struct gil_call no_gil_call;

const volatile bool gil_callsite_runs = true;

static __always_inline struct gil_thread_ids gil_name_current(struct task_struct *task)
{
	struct gil_thread_key key = {
		.thread_pointer = current_thread_pointer(task),
		.host_pid = current_tgid(),
	};
	struct gil_thread_ids ids = {
		.tid = task_ns_id(task),
		.host_tid = current_tid(),
		.ident = task_ident(task),
	};
	struct gil_thread_ids *known = bpf_map_lookup_elem(&gil_threads, &key);

	if (!known || known->host_tid != ids.host_tid)
		bpf_map_update_elem(&gil_threads, &key, &ids, BPF_ANY);
	return ids;
}

/* The wait is over, or nobody will see how it goes on. */
static __always_inline void gil_call_end(struct task_struct *task, __u64 now)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct gil_call *call = bpf_map_lookup_elem(&gil_calls, &tid);

	if (!call)
		return;
	if (call->since_ns) {
		if (now < call->since_ns)
			now = call->since_ns;
		gil_share_out(task, &call->wait, call->since_ns, now);
		call->wait.end_ns = now;
	}
	gil_wait_report(task, &call->wait, GIL_METHOD_CALLSITE);
	bpf_map_delete_elem(&gil_calls, &tid);
}

static __always_inline bool gil_is_known(struct gil_process *process, __u64 gil)
{
	for (int i = 0; i < GIL_MAX_PER_PROCESS; i++) {
		if (gil && process->gils[i] == gil)
			return true;
	}
	return false;
}

SEC("?uprobe")
int gil_call_enter(struct pt_regs *regs)
{
	__u64 now = bpf_ktime_get_ns(), address = PT_REGS_PARM1(regs) - GIL_COND_AT;
	struct task_struct *task = current_task();
	__u32 tgid = current_tgid(), tid = current_tid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct gil_thread_ids holder;
	struct gil_call *call;
	struct gil gil;

	if (gil_end_ns || !process || !gil_is_known(process, address) || !gil_read(address, &gil))
		return 0;
	call = bpf_map_lookup_elem(&gil_calls, &tid);
	if (call && call->wait.gil != address) {
		gil_call_end(task, now);
		call = NULL;
	}
	if (!call) {
		bpf_map_update_elem(&gil_calls, &tid, &no_gil_call, BPF_ANY);
		call = bpf_map_lookup_elem(&gil_calls, &tid);
		if (!call) {
			gil_lost();
			return 0;
		}
		call->wait.start_ns = now;
		call->wait.gil = address;
		gil_name_current(task);
	}
	holder = gil_holder_of(process, task, gil.last_holder);
	gil_wait_held_by(&call->wait, holder);
	gil_held_by(tgid, address, now, holder);
	call->wait.sleeps++;
	call->run_delay = run_delay(task);
	call->since_ns = now;
	return 0;
}

SEC("?uprobe")
int gil_call_resume(struct pt_regs *regs)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = current_task();
	__u32 tgid = current_tgid(), tid = current_tid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct gil_call *call = bpf_map_lookup_elem(&gil_calls, &tid);
	struct gil gil;

	if (gil_end_ns || !process || !call || !call->since_ns)
		return 0;
	call->wait.runq_ns = run_delay(task) - call->run_delay;
	gil_share_out(task, &call->wait, call->since_ns, now);
	call->wait.end_ns = now;
	call->since_ns = 0;
	if (!gil_read(call->wait.gil, &gil) || gil.locked)
		return 0; /* not yet: it will call again */
	call->wait.dropper = gil_holder_of(process, task, gil.last_holder);
	gil_held_by(tgid, call->wait.gil, now, gil_name_current(task));
	gil_call_end(task, now);
	return 0;
}

#endif
