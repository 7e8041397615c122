/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gil_wait's method `callsite`, for C libraries whose futex address does not identify the GIL:
 * musl's condition variables sleep on a word on the waiter's own stack. Two uprobes inside
 * take_gil(), on the call of pthread_cond_timedwait() and on the instruction after the call;
 * threads reach both only when another thread holds the GIL. After the call the thread holds
 * gil->mutex, so gil->locked is exact: 0 means that the current thread takes the GIL, and
 * gil->last_holder still names the dropper.
 */
#ifndef UNDERSPAN_GIL_WAIT_CALLSITE_BPF_H
#define UNDERSPAN_GIL_WAIT_CALLSITE_BPF_H

#include "gil_wait/wait.bpf.h"

struct gil_call {
	__u64 since_ns; /* start of the current call; 0: not in the call */
	__u64 run_delay;
	struct gil_wait wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64); /* task_key() */
	__type(value, struct gil_call);
} gil_calls SEC(".maps");

/* Too big for the BPF stack. */
static const struct gil_call no_gil_call;

const volatile bool gil_callsite_runs = true;

static __always_inline void gil_call_attribute(struct task_struct *task, struct gil_call *call,
					       __u64 end)
{
	struct gil_history *history = gil_history_of(BPF_CORE_READ(task, tgid), call->wait.gil);

	gil_attribute_sleep(history, &call->wait, BPF_CORE_READ(task, pid), call->since_ns, end);
}

/* Reports the wait: the thread took the GIL, or the rest will not be seen. */
static __always_inline void gil_call_end(struct task_struct *task, __u64 now)
{
	__u64 key = task_key(task);
	struct gil_call *call = bpf_map_lookup_elem(&gil_calls, &key);

	if (!call)
		return;
	if (call->since_ns) {
		if (now < call->since_ns)
			now = call->since_ns;
		gil_call_attribute(task, call, now);
		call->wait.end_ns = now;
	}
	gil_wait_report(task, &call->wait, GIL_METHOD_CALLSITE);
	bpf_map_delete_elem(&gil_calls, &key);
}

static __always_inline bool gil_is_known(struct gil_process *process, __u64 gil)
{
	for (int i = 0; i < GIL_MAX_PER_PROCESS; i++) {
		if (gil && process->gils[i] == gil)
			return true;
	}
	return false;
}

/* In the waiter, at the call of pthread_cond_timedwait() inside take_gil(). */
SEC("?uprobe")
int gil_call_enter(struct pt_regs *regs)
{
	__u64 now = bpf_ktime_get_ns(), address = PT_REGS_PARM1(regs) - PYTHON_GIL_COND;
	struct task_struct *task = current_task();
	__u64 key = task_key(task);
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct gil_history *history;
	struct gil_thread_ids holder;
	struct gil_call *call;
	struct python_gil gil;

	if (gil_end_ns || !process || !gil_is_known(process, address) || !gil_read(address, &gil))
		return 0;
	call = bpf_map_lookup_elem(&gil_calls, &key);
	if (call && call->wait.gil != address) {
		gil_call_end(task, now);
		call = NULL;
	}
	if (!call) {
		if (gil_wait_out)
			return 0;
		bpf_map_update_elem(&gil_calls, &key, &no_gil_call, BPF_ANY);
		call = bpf_map_lookup_elem(&gil_calls, &key);
		if (!call) {
			gil_lost();
			return 0;
		}
		call->wait.start_ns = now;
		call->wait.gil = address;
		gil_publish_current(task);
	}
	history = gil_history_of(tgid, address);
	holder = gil_holder_of(process, task, gil.last_holder, history);
	gil_wait_held_by(&call->wait, holder);
	gil_held_by(history, tgid, address, now, holder);
	call->wait.sleeps++;
	call->run_delay = run_delay(task);
	call->since_ns = now;
	return 0;
}

/* In the waiter, at the instruction after the call; gil->mutex is held. */
SEC("?uprobe")
int gil_call_resume(struct pt_regs *regs)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = current_task();
	__u64 key = task_key(task);
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct gil_call *call = bpf_map_lookup_elem(&gil_calls, &key);
	struct gil_history *history;
	struct python_gil gil;

	if (gil_end_ns || !process || !call || !call->since_ns)
		return 0;
	call->wait.runq_ns = run_delay(task) - call->run_delay;
	gil_call_attribute(task, call, now);
	call->wait.end_ns = now;
	call->since_ns = 0;
	if (!gil_read(call->wait.gil, &gil) || gil.locked)
		return 0; /* lost the race for the GIL: the thread will call again */
	history = gil_history_of(tgid, call->wait.gil);
	call->wait.dropper = gil_holder_of(process, task, gil.last_holder, history);
	gil_held_by(history, tgid, call->wait.gil, now, gil_publish_current(task));
	gil_call_end(task, now);
	return 0;
}

#endif
