/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What bpf/sched.bpf.c remembers of a thread between two context switches, for both trackers in
 * one record: found once a switch. In task storage, which goes with its thread, where a kernel
 * can allocate it under the run queue's lock; else in a preallocated hash.
 */
#ifndef UNDERSPAN_THREAD_BPF_H
#define UNDERSPAN_THREAD_BPF_H

#include "underspan.bpf.h"
#include "compat.bpf.h"
#include "events/gil_wait.h"
#include "events/off_cpu.h"

/* A thread's wait for a GIL, put together from its sleeps of up to 5 ms. */
struct gil_wait {
	__u64 start_ns; /* of the first sleep; 0: no wait is open */
	__u64 end_ns;	/* of the last sleep; 0: it sleeps */
	__u64 runq_ns;	/* of the last sleep */
	__u64 forced_ns;
	__u64 gap_ns;	     /* on a CPU since the last sleep ended */
	__u64 switch_number; /* of the GIL: when the last sleep began or, woken, ended */
	__u64 forced_end_ns; /* of the last forced hand-over, forced_before_ns long */
	__u64 forced_before_ns;
	struct gil_holder holders[GIL_MAX_HOLDERS];
	struct gil_thread_ids dropper;
	__u32 sleeps;
	__u8 n_holders;
	__u8 word;	     /* enum gil_word: what the thread sleeps on; GIL_NONE: it does not */
	__u8 woken;	     /* the last sleep ended because somebody dropped the GIL */
	__u8 holder;	     /* place of the present one in holders[] */
	__u64 gil;	     /* address of the GIL that it sleeps on */
	__u64 holder_tstate; /* thread state of holders[0] */
	__u8 taken; /* it has the GIL: it said so to the thread that was forced to drop it */
	/* Python stacks, see gil_stack.bpf.h: keys, 0 for none, which `missed` has the causes of */
	__u8 missed, holder_missed; /* enum event_stat; 0: not looked for */
	__u8 samples;		    /* how often they were looked for */
	__u64 stack, holder_stack;
	struct python_frame holder_at; /* innermost, of holder_stack */
};

struct thread {
	__u64 on_ns;   /* it has been running since; 0: not seen since it was switched out */
	__u64 off_ns;  /* it has been off the CPU since; 0: it runs */
	__u64 wake_ns; /* it was woken; 0: not yet */
	__u64 exec_ns; /* how long it had run, in all, when it was switched out */
	__u64 thread_pointer;
	__u64 futex;	    /* that only its process can wake it at; 0: sleeps elsewhere */
	__u64 waker_futex;  /* where its last waker woke somebody; 0: not known */
	__u64 off_cpu_late; /* an interval's row was put off: see off_cpu_python.bpf.h */
	struct gil_wait gil;
	struct off_cpu off;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} sched_thread_storage SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct thread);
} sched_thread_hash SEC(".maps");

/* Too big for the BPF stack, and what a new record begins as. */
static const struct thread empty_thread;

const volatile bool has_task_storage = true;

static __always_inline struct thread *thread_find(struct task_struct *task)
{
	__u32 tid;

	if (has_task_storage)
		return bpf_task_storage_get(&sched_thread_storage, task, NULL, 0);
	tid = BPF_CORE_READ(task, pid);
	return bpf_map_lookup_elem(&sched_thread_hash, &tid);
}

/* NULL: the map is full, or busy on this CPU. */
static __always_inline struct thread *thread_create(struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);

	if (has_task_storage)
		return bpf_task_storage_get(&sched_thread_storage, task, NULL,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_map_update_elem(&sched_thread_hash, &tid, &empty_thread, BPF_ANY);
	return bpf_map_lookup_elem(&sched_thread_hash, &tid);
}

static __always_inline void thread_delete(struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);

	if (has_task_storage)
		bpf_task_storage_delete(&sched_thread_storage, task);
	else
		bpf_map_delete_elem(&sched_thread_hash, &tid);
}

#endif
