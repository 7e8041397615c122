/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sums over all intervals off the CPU, however short; off_cpu's ring buffer, counters and options.
 */
#ifndef UNDERSPAN_OFF_CPU_PROFILE_BPF_H
#define UNDERSPAN_OFF_CPU_PROFILE_BPF_H

#include "lib/event.bpf.h"
#include "sched/thread.bpf.h"

TRACKER_MAPS(off_cpu_);

/* Double buffer: programs add to the active map while user space empties the other map. */
volatile __u32 off_cpu_active_profile = 0;
struct off_cpu_profile_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct off_cpu_profile_key);
	__type(value, struct off_cpu_profile);
};
struct off_cpu_profile_map off_cpu_profile_0 SEC(".maps"), off_cpu_profile_1 SEC(".maps");

/*
 * Overflow rows, by active buffer and cause: used when a map is full. Details are lost, time is
 * not.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * OFF_CPU_CAUSE_MAX);
	__type(key, __u32);
	__type(value, struct off_cpu_sum);
} off_cpu_profile_overflow SEC(".maps");

/* Scratch space for a new sum: too big for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct off_cpu_profile);
} off_cpu_scratch SEC(".maps");

const volatile bool off_cpu_runs = true;
volatile __u64 off_cpu_min_ns = 0; /* user space may change the value at any time */
const volatile bool off_cpu_user_stacks = true;

static __always_inline void off_cpu_stat(__u32 stat, __u64 n)
{
	stat_add_in(&off_cpu_stats, stat, n);
}

/* Counts an interval that reached neither a row nor a sum. */
static __always_inline void off_cpu_lost(void)
{
	off_cpu_stat(STAT_SEEN, 1);
	off_cpu_stat(STAT_LOST_STATE, 1);
}

static __always_inline void off_cpu_fill(struct off_cpu_event *event, struct task_struct *task,
					 struct thread *t, bool unseen)
{
	__u64 n;
	long bytes;

	header_set_task(&event->header, task);
	event->cpu = bpf_get_smp_processor_id();
	__builtin_memcpy(&event->off, &t->off, sizeof(event->off));
	if (!event->off.waker.host_tid)
		__builtin_memset(&event->off.waker, 0, sizeof(event->off.waker));
	bytes = unseen ? 0 : bpf_get_task_stack(task, event->kernel, sizeof(event->kernel), 0);
	n = bytes < 0 ? 0 : bytes / sizeof(event->kernel[0]);
	if (n < OFF_CPU_KERNEL_FRAMES) /* the helper does not clear the unused entries */
		event->kernel[n] = 0;
}

/* Each interval stands for 1 << shift intervals: the governor samples. */
static __always_inline void off_cpu_sum_add(struct off_cpu_sum *sum, __u64 ns, __u64 runq_ns,
					    __u32 shift)
{
	if (!sum->count)
		sum->min_ns = sum->max_ns = ns;
	if (ns < sum->min_ns)
		sum->min_ns = ns;
	if (ns > sum->max_ns)
		sum->max_ns = ns;
	sum->count += 1ULL << shift;
	sum->off_ns += ns << shift;
	sum->runq_ns += runq_ns << shift;
}

static __always_inline struct off_cpu_profile_key off_cpu_profile_key(__u32 host_tid,
								      const struct off_cpu *off)
{
	return (struct off_cpu_profile_key){
		.host_tid = host_tid,
		.waker_host_tid = off->waker.host_tid,
		.user_hash = off->user_hash,
		.syscall = off->syscall,
		.cause = off->cause,
		.state = off->state,
	};
}

static __always_inline void *off_cpu_profile_map(__u32 active)
{
	return active & 1 ? (void *)&off_cpu_profile_1 : (void *)&off_cpu_profile_0;
}

/* Returns the time in the sum that has no Python stack so far. */
static __always_inline __u64 off_cpu_profile_add(struct task_struct *task, struct thread *t,
						 __u64 ns, __u64 runq_ns, bool unseen)
{
	struct off_cpu_profile_key key = off_cpu_profile_key(task->pid, &t->off);
	__u32 active = off_cpu_active_profile & 1, shift = t->off.skip_shift & 31, zero = 0,
	      overflow;
	void *map = off_cpu_profile_map(active);
	struct off_cpu_profile *profile = bpf_map_lookup_elem(map, &key);
	struct off_cpu_sum *sum;

	if (profile) {
		off_cpu_sum_add(&profile->sum, ns, runq_ns, shift);
		return profile->sum.off_ns;
	}
	profile = bpf_map_lookup_elem(&off_cpu_scratch, &zero);
	if (!profile)
		return 0;
	off_cpu_fill(&profile->first, task, t, unseen);
	__builtin_memset(&profile->sum, 0, sizeof(profile->sum));
	off_cpu_sum_add(&profile->sum, ns, runq_ns, shift);
	if (!bpf_map_update_elem(map, &key, profile, BPF_ANY))
		return ns;
	overflow = active * OFF_CPU_CAUSE_MAX + t->off.cause;
	sum = bpf_map_lookup_elem(&off_cpu_profile_overflow, &overflow);
	if (sum)
		off_cpu_sum_add(sum, ns, runq_ns, shift);
	return 0;
}

#endif
