/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The record of a thread between two context switches, shared by the trackers of sched.bpf.c and
 * looked up once per switch. Kept in task storage, freed with the thread, on kernels that can
 * allocate task storage under the run queue's lock; on older kernels in a preallocated hash.
 */
#ifndef UNDERSPAN_SCHED_THREAD_BPF_H
#define UNDERSPAN_SCHED_THREAD_BPF_H

#include "gil_wait/wait_state.bpf.h"
#include "lib/task.bpf.h"
#include "events/off_cpu.h"
#include "request/state.bpf.h"

/* The thread whose identity off_cpu.waker has, also if not the waker of the present sleep. */
struct waker_known {
	__u64 thread; /* bpf_get_current_pid_tgid() */
	__u64 mm;     /* changes at exec() */
	__u64 read_ns;
};

struct thread {
	__u64 on_ns;   /* running since; 0: not seen since the last switch out */
	__u64 off_ns;  /* off the CPU since; 0: running */
	__u64 wake_ns; /* time of the wake-up; 0: none so far */
	__u64 exec_ns; /* sum_exec_runtime at the switch out */
	__u64 thread_pointer;
	__u64 futex;	   /* private futex slept on, woken only by the same process; 0: none */
	__u64 waker_futex; /* futex of the last wake-up; 0: unknown */
	__u64 off_cpu_deferred; /* enum off_cpu_deferred of off_cpu/python_stack.bpf.h */
	__u64 state;		/* TASK_* bits at the switch out; 0: runnable */
	struct gil_wait gil;
	struct waker_known waker;
	__u64 user_stack_paid_ns; /* until then native stacks at switches out are paid for */
	__u64 off_cpu_resumes;	  /* its intervals can be deferred until it resumes */
	struct off_cpu off;
	struct request_sums request;
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
	__type(key, __u64); /* task_key() */
	__type(value, struct thread);
} sched_thread_hash SEC(".maps");

/* The initial record: too big for the BPF stack. */
static const struct thread empty_thread;

const volatile bool has_task_storage = true;

/*
 * Set by user space: the governor has taken the tracker out. Open intervals then end as usual, and
 * no interval begins. `sched_out`: all trackers of the object are out, and the programs on context
 * switches are about to be detached; sched_forget() then drops open intervals.
 */
bool off_cpu_out, gil_wait_out, request_out, sched_out;
/* gc_pause has a separate object. Requests read before the time a tracker was put back lack the
 * tracker's part. */
bool gc_pause_out;
__u64 gil_wait_since_ns, gc_pause_since_ns;

static __always_inline struct thread *thread_find(struct task_struct *task)
{
	__u64 key;

	if (has_task_storage)
		return bpf_task_storage_get(&sched_thread_storage, task, NULL, 0);
	key = task_key(task);
	return bpf_map_lookup_elem(&sched_thread_hash, &key);
}

/* NULL: the map is full or busy on this CPU. */
static __always_inline struct thread *thread_create(struct task_struct *task)
{
	__u64 key;

	if (has_task_storage)
		return bpf_task_storage_get(&sched_thread_storage, task, NULL,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);
	key = task_key(task);
	bpf_map_update_elem(&sched_thread_hash, &key, &empty_thread, BPF_ANY);
	return bpf_map_lookup_elem(&sched_thread_hash, &key);
}

static __always_inline void thread_delete(struct task_struct *task)
{
	__u64 key = task_key(task);

	if (has_task_storage)
		bpf_task_storage_delete(&sched_thread_storage, task);
	else
		bpf_map_delete_elem(&sched_thread_hash, &key);
}

/* A wake-up may be traced just before the switch out; an older wake-up is an earlier sleep's. */
#define WAKE_BEFORE_SWITCH_NS 10000

/* At a switch, for the thread that leaves the CPU. */
static __always_inline void thread_leaves(struct task_struct *task, struct thread *t, __u64 now)
{
	if (now - t->wake_ns > WAKE_BEFORE_SWITCH_NS)
		t->wake_ns = 0;
	if (t->on_ns)
		t->gil.gap_ns += now - t->on_ns;
	t->off_ns = now;
	t->exec_ns = task->se.sum_exec_runtime;
}

static __always_inline void thread_enters(struct thread *t, __u64 now)
{
	t->off_ns = 0;
	t->wake_ns = 0;
	t->on_ns = now;
}

#endif
