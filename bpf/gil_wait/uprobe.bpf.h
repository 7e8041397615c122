/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gil_wait's reference method: uprobes on the entry and the exits of take_gil(). Far too expensive
 * for production, but exact without inference: the start and the end of each wait, and the holder,
 * which is the thread that left take_gil() last. Durations are wall time inside the function;
 * runq_ns is the part spent runnable without a CPU, because the kernel often preempts a thread at
 * the uprobe. The first holder is certain, and so is the time until the next thread left
 * take_gil(). Main interpreter only.
 */
#ifndef UNDERSPAN_GIL_WAIT_UPROBE_BPF_H
#define UNDERSPAN_GIL_WAIT_UPROBE_BPF_H

#include "gil_wait/wait.bpf.h"

/* Upper bound of take_gil() with a free GIL, uprobes included. */
#define QUICK_TAKE_NS 50000

struct gil_take {
	__u64 start_ns;
	__u64 stack_pointer;
	__u64 contended;	 /* the GIL was held when the function began */
	__u64 sleeps, run_delay; /* the kernel's counters of the thread at start_ns */
	__u64 switch_number;	 /* of the GIL at start_ns */
	struct gil_thread_ids holder;
};

/* LRU: a thread may end inside take_gil(), when the interpreter shuts down. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct gil_take);
} gil_takes SEC(".maps");

/* The present or last holder, by host pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gil_thread_ids);
} gil_takers SEC(".maps");

/* The time at which a thread that took the GIL from a different thread left take_gil(). */
struct gil_turn {
	__u64 switch_number; /* of the GIL, from that time on */
	__u32 host_pid, pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gil_turn);
	__type(value, __u64);
} gil_turns SEC(".maps");

static __always_inline void gil_turn_begins(struct gil_process *process, __u64 now)
{
	struct gil_turn change = { .host_pid = current_tgid() };
	struct python_gil gil;

	if (bpf_probe_read_user(&gil, sizeof(gil), (void *)process->gils[0]))
		return;
	change.switch_number = gil.switch_number;
	bpf_map_update_elem(&gil_turns, &change, &now, BPF_NOEXIST);
}

/* Time from the entry until a second thread can have held the GIL; 0: unknown. */
static __always_inline __u64 gil_first_holder_ns(const struct gil_take *take)
{
	struct gil_turn next = { .switch_number = take->switch_number + 1,
				 .host_pid = current_tgid() };
	__u64 *changed = bpf_map_lookup_elem(&gil_turns, &next);

	return changed && *changed > take->start_ns ? *changed - take->start_ns : 0;
}

/* At the entry of take_gil(), in the calling thread. */
SEC("?uprobe")
int gil_take_enter(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);
	struct gil_thread_ids *holder = bpf_map_lookup_elem(&gil_takers, &tgid);
	struct gil_take take = { .stack_pointer = PT_REGS_SP(regs) };
	struct task_struct *task = current_task();
	struct python_gil gil = {};

	if (!process || gil_wait_out || gil_end_ns)
		return 0;
	take.run_delay = run_delay(task);
	take.sleeps = BPF_CORE_READ(task, nvcsw);
	bpf_probe_read_user(&gil, sizeof(gil), (void *)process->gils[0]);
	take.contended = gil.locked == 1;
	take.switch_number = gil.switch_number;
	/* a mismatch means: a newer holder has the GIL but has not left take_gil() so far */
	if (holder && holder->host_tid != current_tid() &&
	    (!holder->ident ||
	     holder->ident == read_user_u64(gil.last_holder + process->tstate_thread_id)))
		take.holder = *holder;
	take.start_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&gil_takes, &thread, &take, BPF_ANY);
	return 0;
}

static __always_inline void gil_take_report(struct gil_take *take, __u64 now)
{
	struct task_struct *task = current_task();
	struct gil_wait wait = { .runq_ns = 0 };
	struct gil_wait_event *event;
	__u64 ns = now - take->start_ns;

	gil_stat(STAT_SEEN, 1);
	wait.holders[0].tid = take->holder.tid;
	wait.holders[0].host_tid = take->holder.host_tid;
	wait.holders[0].ident = take->holder.ident;
	gil_profile_add(task, &wait, ns);
	if (ns < gil_wait_min_ns)
		return gil_stat(STAT_FILTERED, 1);
	event = event_reserve_in(&gil_wait_events, &gil_wait_stats, sizeof(*event));
	if (!event)
		return;
	header_set_current(&event->header);
	event->header.start_ns = take->start_ns;
	event->header.end_ns = now;
	event->holders[0] = wait.holders[0];
	event->holders[0].ns = gil_first_holder_ns(take);
	event->n_holders = 1;
	event->sleeps = BPF_CORE_READ(task, nvcsw) - take->sleeps;
	event->runq_ns = run_delay(task) - take->run_delay;
	event->method = GIL_METHOD_UPROBE;
	event_submit_in(&gil_wait_events, &gil_wait_stats, &gil_wait_sampling, event);
}

/* At each possible exit of take_gil(), in the calling thread. */
SEC("?uprobe")
int gil_take_exit(struct pt_regs *regs)
{
	__u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct gil_take *take = bpf_map_lookup_elem(&gil_takes, &thread);
	struct gil_thread_ids self = { .host_tid = current_tid() };
	__u32 tgid = current_tgid();
	struct gil_process *process = bpf_map_lookup_elem(&gil_processes, &tgid);

	/* an indirect jump may be a switch statement: a true exit has the entry's stack pointer */
	if (gil_end_ns || !take || take->stack_pointer != PT_REGS_SP(regs))
		return 0;
	self.tid = task_ns_id(current_task());
	self.ident = task_ident(current_task());
	bpf_map_update_elem(&gil_takers, &tgid, &self, BPF_ANY);
	if (process)
		gil_turn_begins(process, now);
	/* free at entry, but another thread took the GIL first */
	if (take->contended || now - take->start_ns >= QUICK_TAKE_NS)
		gil_take_report(take, now);
	bpf_map_delete_elem(&gil_takes, &thread);
	return 0;
}

#endif
