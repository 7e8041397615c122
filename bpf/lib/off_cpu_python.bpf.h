/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a thread that was off the CPU. When it leaves nobody knows whether it will be
 * for long; when it is switched in, its memory is not at hand yet. So a long interval is put off
 * until the thread is back in a context of its own but not yet in user mode, where all is as it
 * was. The kernel tells such a moment in three ways: a thread leaves the scheduler (6.18
 * tells, 6.12 does not), its restartable sequence area is updated on the way out, after each switch
 * (glibc registers one since 2.35; kernels up to 6.18), or a system call ends, which is watched
 * only when a thread needs it.
 */
#ifndef UNDERSPAN_OFF_CPU_PYTHON_BPF_H
#define UNDERSPAN_OFF_CPU_PYTHON_BPF_H

#include "pythread.bpf.h"

struct off_cpu_with_stack {
	struct off_cpu_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
};

/* From the switch in to the return to user mode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, __u32); /* host tid */
	__type(value, struct off_cpu_with_stack);
} off_cpu_late SEC(".maps");

static const struct off_cpu_with_stack empty_off_cpu;

const volatile bool off_cpu_py_stacks = true;
const volatile bool has_sched_exit = false;
const volatile bool has_rseq_update = false;

bool sys_exit_wanted; /* a thread has no restartable sequences */
bool sys_exit_seen;   /* user space attached to the ends of system calls */
__u64 off_cpu_late_n; /* how many there are */

/* A thread registers its restartable sequences when it begins. */
enum { RSEQ_SETTLED_NS = 1000000000 };

static __always_inline bool return_is_seen(struct task_struct *task, struct thread *t, __u64 now)
{
	if (has_sched_exit)
		return true;
	if (has_rseq_update &&
	    BPF_CORE_READ((struct task_struct___rseq_pointer *)task, rseq) != NULL)
		return true;
	if (now - BPF_CORE_READ(task, start_time) > RSEQ_SETTLED_NS)
		sys_exit_wanted = true;
	return sys_exit_seen && t->off.syscall >= 0;
}

/* The interval is over. False: its row has to be made at once. */
static __always_inline bool off_cpu_put_off(struct task_struct *task, struct thread *t, __u64 end,
					    __u64 runq_ns)
{
	__u32 tgid = task->tgid, tid = task->pid;
	struct off_cpu_with_stack *late;

	if (!off_cpu_py_stacks || !bpf_map_lookup_elem(&python_processes, &tgid) ||
	    !return_is_seen(task, t, end))
		return false;
	if (bpf_map_update_elem(&off_cpu_late, &tid, &empty_off_cpu, BPF_NOEXIST))
		goto fail;
	late = bpf_map_lookup_elem(&off_cpu_late, &tid);
	if (!late)
		goto fail;
	off_cpu_fill(&late->event, task, t, false);
	late->event.header.start_ns = t->off_ns;
	late->event.header.end_ns = end;
	late->event.header.skip_shift = t->off.skip_shift;
	late->event.runq_ns = runq_ns;
	t->off_cpu_late = 1;
	__sync_fetch_and_add(&off_cpu_late_n, 1);
	return true;
fail:
	off_cpu_stat(STAT_STACK_ROOM, 1);
	return false;
}

/* The row of the current thread that was put off. Global: see pythread.bpf.h. */
__noinline int off_cpu_send_late(__u32 walk, __u32 slot)
{
	struct python_walk *to = python_walk_of(slot);
	struct off_cpu_with_stack *late;
	__u32 tid = current_tid(), n;

	late = bpf_map_lookup_elem(&off_cpu_late, &tid);
	off_cpu_stat(STAT_SEEN, 1);
	if (!late) {
		off_cpu_stat(STAT_LOST_STATE, 1);
		return 0;
	}
	if (walk && to) {
		to->ident = task_ident((struct task_struct *)bpf_get_current_task());
		to->ns_tid = late->event.header.tid;
		to->moment++;
		python_find_tstate(slot);
		python_take_stack(slot);
		python_copy_stack(&to->stack, late->frames, &late->event.py_stack);
	} else {
		off_cpu_stat(STAT_STACK_LATE, 1);
	}
	n = *(volatile __u16 *)&late->event.py_stack.n;
	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	event_output_in(&off_cpu_events, &off_cpu_stats, &off_cpu_sampling, late,
			sizeof(late->event) + n * sizeof(late->frames[0]));
	bpf_map_delete_elem(&off_cpu_late, &tid);
	return 0;
}

static __always_inline void off_cpu_report_late(struct thread *t, bool walk, __u32 slot)
{
	t->off_cpu_late = 0;
	__sync_fetch_and_add(&off_cpu_late_n, -1);
	off_cpu_send_late(walk, slot);
}

#endif
