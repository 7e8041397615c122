/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Python stack of a thread that was off the CPU, and its native stack, where that was not taken
 * at the switch out. At the switch out the duration is unknown; at the switch in the thread's
 * memory cannot be read. So a long interval is deferred until the thread runs in its own context
 * again, but before user mode: registers, stack and Python's state are then unchanged. Three
 * hooks reach that point: the thread leaves the scheduler (sched_exit_tp; in 6.18, not in 6.12);
 * the kernel updates the thread's rseq area after a switch (rseq_update, up to 6.18; glibc
 * registers an rseq area since 2.35); or a system call ends (attached only when a thread needs it).
 *
 * The sums take their stacks from the deferred walks. A walk for each of thousands of short
 * intervals a second would cost more than the intervals, so walks are sampled: an interval goes
 * into the sum without a Python stack, and each walk, made for a row or because off_cpu_sample_ns
 * have accumulated, takes over the whole sum gathered so far. The time of a thread in the same
 * system call, of the same waker and, where it was taken at the switch out, native stack is thus
 * distributed among its stacks at random, as in any sampling profiler; the total is exact. Sums of
 * preemptions have no stack, because the place of a preemption is random.
 */
#ifndef UNDERSPAN_OFF_CPU_PYTHON_STACK_BPF_H
#define UNDERSPAN_OFF_CPU_PYTHON_STACK_BPF_H

#include "off_cpu/profile.bpf.h"
#include "off_cpu/user_stack.bpf.h"
#include "python/threads.bpf.h"
#include "sched/thread.bpf.h"

struct off_cpu_with_stack {
	struct off_cpu_event event;
	struct python_frame frames[PYTHON_STACK_MAX];
	__u64 user_hash; /* of event.off.user; event.off.user_hash is that of the switch out */
};

/* From the switch in to the return to user mode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, __u64); /* task_key() */
	__type(value, struct off_cpu_with_stack);
} off_cpu_deferred SEC(".maps");

static const struct off_cpu_with_stack empty_off_cpu;

/* Values of thread.off_cpu_deferred. */
enum off_cpu_deferred {
	OFF_CPU_DEFERRED_ROW = 1, /* a row waits for its stack */
	OFF_CPU_DEFERRED_SAMPLE,  /* no row: a stack for the sums */
};

/*
 * Python stacks of the sums, by off_cpu_profile_key.py_stack. LRU: a sum whose stack was evicted
 * has none.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* python_walk.hash */
	__type(value, struct python_stack);
} off_cpu_stacks SEC(".maps");

/* Until when this CPU's walks without a row are paid for: a token bucket, as a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} off_cpu_sampled SEC(".maps");

/*
 * Walks of a burst, a few us each. Threads that wake one another have their waits at the same
 * moment: a least distance between walks would always leave out the same ones.
 */
enum { OFF_CPU_SAMPLE_BURST = 64 };

const volatile bool off_cpu_py_stacks = true;
const volatile __u64 off_cpu_sample_ns = 20000000;	/* accumulated time that triggers a walk */
const volatile __u64 off_cpu_sample_every_ns = 5000000; /* mean distance of walks on a CPU */
const volatile bool has_sched_exit = false;
const volatile bool has_rseq_update = false;

bool sys_exit_wanted;	  /* a thread without an rseq area was seen */
bool sys_exit_seen;	  /* user space has attached sched_sys_exit */
__u64 off_cpu_deferred_n; /* number of deferred intervals */

/* A thread registers its rseq area at its start. */
enum { RSEQ_REGISTERED_NS = 1000000000 };

static __always_inline bool resume_is_seen(struct task_struct *task, struct thread *t, __u64 now,
					   enum off_cpu_deferred what)
{
	if (has_sched_exit)
		return true;
	if (has_rseq_update &&
	    BPF_CORE_READ((struct task_struct___rseq_pointer *)task, rseq) != NULL)
		return true;
	if (what == OFF_CPU_DEFERRED_ROW &&
	    now - BPF_CORE_READ(task, start_time) > RSEQ_REGISTERED_NS)
		sys_exit_wanted = true;
	return sys_exit_seen && t->off.syscall >= 0;
}

/* Is a walk without a row due? `without_stack`: time in the sum without a Python stack. */
static __always_inline bool off_cpu_sample_due(struct thread *t, __u64 without_stack, __u64 now)
{
	__u64 earliest = now - OFF_CPU_SAMPLE_BURST * off_cpu_sample_every_ns, *paid;
	__u32 zero = 0;

	if (without_stack < off_cpu_sample_ns || t->off.cause == OFF_CPU_CAUSE_preempt)
		return false;
	paid = bpf_map_lookup_elem(&off_cpu_sampled, &zero);
	if (!paid || (__s64)(*paid - now) > 0)
		return false;
	*paid = (*paid > earliest ? *paid : earliest) + off_cpu_sample_every_ns;
	return true;
}

/* What a walk for the sums needs: no kernel stack, 5 to 15 us of unwinding. */
static __always_inline void off_cpu_fill_sample(struct off_cpu_event *event,
						struct task_struct *task, struct thread *t)
{
	event->header.host_tid = task->pid;
	event->header.tid = task_ns_id(task);
	__builtin_memcpy(&event->off, &t->off, sizeof(event->off));
}

/* Defers the end of the interval. False: the caller must make the row now. */
static __always_inline bool off_cpu_defer(struct task_struct *task, struct thread *t, __u64 end,
					  __u64 runq_ns, enum off_cpu_deferred what)
{
	__u64 key = task_key(task);
	struct off_cpu_with_stack *deferred;
	__u32 tgid = task->tgid;

	if (!off_cpu_py_stacks || !bpf_map_lookup_elem(&python_processes, &tgid) ||
	    !resume_is_seen(task, t, end, what)) {
		t->off_cpu_resumes = 0;
		return false;
	}
	if (bpf_map_update_elem(&off_cpu_deferred, &key, &empty_off_cpu, BPF_ANY))
		goto fail;
	deferred = bpf_map_lookup_elem(&off_cpu_deferred, &key);
	if (!deferred)
		goto fail;
	if (what == OFF_CPU_DEFERRED_ROW)
		off_cpu_fill(&deferred->event, task, t, false);
	else
		off_cpu_fill_sample(&deferred->event, task, t);
	deferred->event.header.start_ns = t->off_ns;
	deferred->event.header.end_ns = end;
	deferred->event.header.skip_shift = t->off.skip_shift;
	deferred->event.runq_ns = runq_ns;
	t->off_cpu_deferred = what;
	t->off_cpu_resumes = 1;
	__sync_fetch_and_add(&off_cpu_deferred_n, 1);
	return true;
fail:
	if (what == OFF_CPU_DEFERRED_ROW)
		off_cpu_stat(STAT_STACK_ROOM, 1);
	return false;
}

/* The deferred interval of the current thread. */
static __always_inline struct off_cpu_with_stack *off_cpu_deferred_of_current(void)
{
	__u64 key = bpf_get_current_task();

	return bpf_map_lookup_elem(&off_cpu_deferred, &key);
}

/* Returns whether the native stack was missing. Global: see python/threads.bpf.h. */
__noinline int off_cpu_take_user_stack(void)
{
	struct off_cpu_with_stack *deferred = off_cpu_deferred_of_current();

	if (!deferred)
		return 0;
	deferred->user_hash = deferred->event.off.user_hash;
	if (!off_cpu_user_stacks || deferred->event.off.user[0])
		return 0;
	deferred->user_hash = user_stack(current_task(), deferred->event.off.user,
					 OFF_CPU_USER_FRAMES);
	return 1;
}

/*
 * Walks the current thread's Python stack; returns whether sums are concerned: there is a stack, or
 * the thread is native. Global: see python/threads.bpf.h.
 */
__noinline int off_cpu_take_stack(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	struct off_cpu_with_stack *deferred = off_cpu_deferred_of_current();
	struct thread *t = thread_find(current_task());

	if (!deferred || !walk || !t)
		return 0;
	walk->ident = task_ident((struct task_struct *)bpf_get_current_task());
	walk->ns_tid = deferred->event.header.tid;
	walk->generation++;
	walk->shown = 0;
	python_find_tstate(slot);
	python_take_stack(slot);
	python_copy_stack(&walk->stack, deferred->frames, &deferred->event.py_stack);
	if (walk->tstate)
		t->off.thread_kind = OFF_CPU_THREAD_PYTHON;
	else if (walk->native && t->off.thread_kind == OFF_CPU_THREAD_UNKNOWN)
		t->off.thread_kind = OFF_CPU_THREAD_NATIVE;
	deferred->event.off.thread_kind = t->off.thread_kind;
	return walk->shown || t->off.thread_kind == OFF_CPU_THREAD_NATIVE;
}

/*
 * Subtracts the amount `n` from a sum; the thread may be preempted and add to the sum in between.
 */
static __always_inline void off_cpu_sum_subtract(struct off_cpu_sum *sum,
						 const struct off_cpu_sum *n)
{
	__sync_fetch_and_add(&sum->count, -n->count);
	__sync_fetch_and_add(&sum->off_ns, -n->off_ns);
	__sync_fetch_and_add(&sum->runq_ns, -n->runq_ns);
}

/* Sums of the current thread with a Python stack have no other writer. */
static __always_inline void off_cpu_sum_merge(struct off_cpu_sum *to, const struct off_cpu_sum *n)
{
	if (!to->count || n->min_ns < to->min_ns)
		to->min_ns = n->min_ns;
	if (n->max_ns > to->max_ns)
		to->max_ns = n->max_ns;
	to->count += n->count;
	to->off_ns += n->off_ns;
	to->runq_ns += n->runq_ns;
}

/* The sum of the stacks just walked. NULL: no room. */
static __always_inline struct off_cpu_profile *
off_cpu_sum_of_stacks(void *map, const struct off_cpu_profile_key *key,
		      const struct off_cpu_profile *from, const struct off_cpu *off)
{
	struct off_cpu_profile *to = bpf_map_lookup_elem(map, key);

	if (to || bpf_map_update_elem(map, key, from, BPF_ANY))
		return to;
	to = bpf_map_lookup_elem(map, key);
	if (!to)
		return NULL;
	to->sum = (struct off_cpu_sum){};
	to->first.off.thread_kind = off->thread_kind;
	__builtin_memcpy(to->first.off.user, off->user, sizeof(off->user));
	return to;
}

/* The key of the Python stack just walked, which is kept; 0: none, or no room. */
static __always_inline __u64 off_cpu_keep_stack(struct python_walk *walk)
{
	__u64 stack = walk->hash | 1;

	if (!walk->shown || (!bpf_map_lookup_elem(&off_cpu_stacks, &stack) &&
			     bpf_map_update_elem(&off_cpu_stacks, &stack, &walk->stack, BPF_ANY)))
		return 0;
	return stack;
}

/*
 * Moves the sum without stacks to the stacks just walked. Without room the sum stays. Global: see
 * python/threads.bpf.h.
 */
__noinline int off_cpu_assign_sum(__u32 slot)
{
	struct python_walk *walk = python_walk_of(slot);
	struct off_cpu_with_stack *deferred = off_cpu_deferred_of_current();
	void *map = off_cpu_profile_map(off_cpu_active_profile);
	struct off_cpu_profile *from, *to;
	struct off_cpu_profile_key key;
	struct off_cpu_sum n;

	if (!deferred || !walk || deferred->event.off.cause == OFF_CPU_CAUSE_preempt)
		return 0;
	key = off_cpu_profile_key(deferred->event.header.host_tid, &deferred->event.off);
	from = bpf_map_lookup_elem(map, &key);
	if (!from)
		return 0;
	key.py_stack = off_cpu_keep_stack(walk);
	key.user_hash = deferred->user_hash;
	if (!key.py_stack && key.user_hash == deferred->event.off.user_hash) {
		from->first.off.thread_kind = deferred->event.off.thread_kind;
		return 0;
	}
	to = off_cpu_sum_of_stacks(map, &key, from, &deferred->event.off);
	if (!to)
		return 0;
	n = *(volatile struct off_cpu_sum *)&from->sum;
	off_cpu_sum_subtract(&from->sum, &n);
	off_cpu_sum_merge(&to->sum, &n);
	return 0;
}

/* Sends the current thread's deferred row. Global: see python/threads.bpf.h. */
__noinline int off_cpu_send_deferred(__u32 walked)
{
	struct off_cpu_with_stack *deferred = off_cpu_deferred_of_current();
	__u32 n;

	off_cpu_stat(STAT_SEEN, 1);
	if (!deferred) {
		off_cpu_stat(STAT_LOST_STATE, 1);
		return 0;
	}
	if (!walked)
		off_cpu_stat(STAT_STACK_LATE, 1);
	n = *(volatile __u16 *)&deferred->event.py_stack.n;
	if (n > PYTHON_STACK_MAX)
		n = PYTHON_STACK_MAX;
	event_output_in(&off_cpu_events, &off_cpu_stats, &off_cpu_sampling, deferred,
			sizeof(deferred->event) + n * sizeof(deferred->frames[0]));
	return 0;
}

static __always_inline void off_cpu_finish_deferred(struct thread *t, bool walk, __u32 slot)
{
	__u64 key = bpf_get_current_task(), what = t->off_cpu_deferred;

	t->off_cpu_deferred = 0;
	__sync_fetch_and_add(&off_cpu_deferred_n, -1);
	if (walk && off_cpu_take_user_stack() + off_cpu_take_stack(slot))
		off_cpu_assign_sum(slot);
	if (what == OFF_CPU_DEFERRED_ROW)
		off_cpu_send_deferred(walk);
	bpf_map_delete_elem(&off_cpu_deferred, &key);
}

/* Counts the row as lost, if there was to be one. Any thread may be current. */
static __always_inline void off_cpu_drop_deferred(struct task_struct *task, struct thread *t)
{
	__u64 key = task_key(task), what = t->off_cpu_deferred;

	if (!what)
		return;
	t->off_cpu_deferred = 0;
	__sync_fetch_and_add(&off_cpu_deferred_n, -1);
	if (what == OFF_CPU_DEFERRED_ROW)
		off_cpu_lost();
	bpf_map_delete_elem(&off_cpu_deferred, &key);
}

#endif
