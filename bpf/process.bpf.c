// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which processes are tracked, kept right in the kernel: a child is tracked from its first
 * instruction, a dead process is forgotten before its id can be used again. User space adds the
 * processes in which it found an interpreter (src/probe/processes.c), and where that lies
 * (src/trackers/python_places.c): in a child, which is a copy, where it lies in its parent.
 */
#include "underspan.bpf.h"
#include "python_places.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void tell(__u32 kind, __u32 host_pid, __u32 parent)
{
	struct process_event *event;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	event->kind = kind;
	event->host_pid = host_pid;
	event->parent_host_pid = parent;
	/* an interpreter should be probed before it has done much: wake the reader at once */
	bpf_ringbuf_submit(event, 0);
}

/*
 * A program that starts threads all the time shall not wake the reader each time: once in this
 * while; it is awake then for as long as there are some to look at.
 */
static const __u64 TELL_THREADS_EVERY_NS = 5000000;
static __u64 threads_told_ns;

static __always_inline void tell_thread(struct task_struct *thread)
{
	struct process_event *event;
	__u64 flags = BPF_RB_NO_WAKEUP;

	stat_add(STAT_SEEN, 1);
	event = event_reserve(sizeof(*event));
	if (!event)
		return;
	event->kind = PROCESS_THREAD;
	event->host_pid = thread->tgid;
	event->host_tid = thread->pid;
	event->pid = task_ns_id(BPF_CORE_READ(thread, group_leader));
	event->tid = task_ns_id(thread);
	event->ident = task_ident(thread);
	event->time_ns = bpf_ktime_get_ns();
	if (event->time_ns - threads_told_ns > TELL_THREADS_EVERY_NS) {
		threads_told_ns = event->time_ns;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(event, flags);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	struct process_info *known, info;
	struct python_process *python;

	known = bpf_map_lookup_elem(&processes, &parent_tgid);
	if (!known)
		return 0;
	if (child->pid != child->tgid) {
		if (known->flags & PROCESS_PYTHON)
			tell_thread(child);
		return 0;
	}
	info = *known;
	if (bpf_map_update_elem(&processes, &tgid, &info, BPF_ANY)) {
		stat_add(STAT_SEEN, 1);
		stat_add(STAT_LOST_STATE, 1);
	}
	python = bpf_map_lookup_elem(&python_processes, &parent_tgid);
	if (python)
		bpf_map_update_elem(&python_processes, &tgid, python, BPF_ANY);
	tell(PROCESS_FORK, tgid, parent_tgid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct process_info *known = bpf_map_lookup_elem(&processes, &tgid);

	if (known && known->flags & PROCESS_CHOSEN)
		known->flags &= ~PROCESS_REFUSED;
	else if (known)
		bpf_map_delete_elem(&processes, &tgid);
	bpf_map_delete_elem(&python_processes, &tgid);
	tell(PROCESS_EXEC, tgid, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	/* fires for each thread; do_exit() has already counted this one off */
	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	bpf_map_delete_elem(&python_processes, &tgid);
	if (bpf_map_delete_elem(&processes, &tgid))
		return 0;
	tell(PROCESS_EXIT, tgid, 0);
	return 0;
}
