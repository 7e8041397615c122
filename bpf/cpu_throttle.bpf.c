// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Throttling by a CPU quota (cpu.max, a Kubernetes limit). The kernel only counts throttled time
 * per cgroup, as in cpu.stat; the timer at the end of each quota period tells the times. User space
 * asks every second, for each tracked process and each quota of its cgroups.
 */
#include "lib/event.bpf.h"
#include "lib/task.bpf.h"
#include "events/cpu_throttle.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MAX_LEVELS = 16 };
#define NO_QUOTA      (~0ULL)
#define WINDOW_MAX_NS 1000000000ULL
#define WINDOW_OF(n)  ((n) & (CPU_THROTTLE_WINDOWS - 1))

/* The function of a quota's period timer; learned, because /proc/kallsyms may be restricted. */
__u64 period_function;

/* Ends of periods: user space looks for quotas only if there are some. A lost increment is one of
 * many. */
__u64 periods_ended;

/* Groups with a quota. LRU: an evicted group loses its windows, not its counters. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* struct task_group * */
	__type(value, struct cpu_throttle_periods);
} cpu_throttle_groups SEC(".maps");

/* Processes already reported to user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* host pid */
	__type(value, __u32);
} cpu_throttle_watched SEC(".maps");

/* Final figures of exited processes, until user space reads them. */
struct ended_key {
	__u32 host_pid;
	__u32 level;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ended_key);
	__type(value, struct cpu_throttle_event);
} cpu_throttle_ended SEC(".maps");

/* too big for the BPF stack */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct cpu_throttle_event);
} cpu_throttle_scratch SEC(".maps");

static const struct cpu_throttle_periods no_periods;

static __always_inline void read_totals(struct cpu_throttle_totals *ret, struct task_group *group)
{
	ret->throttled_ns = BPF_CORE_READ(group, cfs_bandwidth.throttled_time);
	ret->periods = BPF_CORE_READ(group, cfs_bandwidth.nr_periods);
	ret->throttled_periods = BPF_CORE_READ(group, cfs_bandwidth.nr_throttled);
}

/* ---- the end of a period ---- */

static __always_inline struct cpu_throttle_window *window_new(struct cpu_throttle_periods *periods,
							      __u64 ns, __u64 period)
{
	struct cpu_throttle_window *window = &periods->windows[WINDOW_OF(periods->n_windows)];

	window->start_ns = ns - period;
	window->end_ns = ns;
	periods->n_windows++;
	return window;
}

/*
 * Accounts the last period. Its cost is known only at the end of the next period, because each CPU
 * accounts separately.
 */
static __always_inline void account_period(struct cpu_throttle_periods *periods,
					   const struct cpu_throttle_totals *now, __u64 ns,
					   __u64 period)
{
	struct cpu_throttle_window *window = &periods->windows[WINDOW_OF(periods->n_windows - 1)];
	__u64 throttled_ns = now->throttled_ns - periods->last.throttled_ns;

	if (!throttled_ns && now->throttled_periods == periods->last.throttled_periods)
		return;
	if (!periods->open) { /* the end of the last period was not seen */
		window = window_new(periods, ns, period);
		window->before = periods->last;
	}
	/* ran first, then throttled until the end of the period */
	if (periods->start_unknown && throttled_ns &&
	    window->end_ns - window->start_ns > throttled_ns)
		window->start_ns = window->end_ns - throttled_ns;
	periods->start_unknown = 0;
	window->after = *now;
}

static __always_inline void quota_exhausted(struct cpu_throttle_periods *periods,
					    const struct cpu_throttle_totals *now, __u64 ns,
					    __u64 period)
{
	struct cpu_throttle_window *window = &periods->windows[WINDOW_OF(periods->n_windows - 1)];

	if (periods->open && ns - window->end_ns < period + period / 2 &&
	    ns - window->start_ns < WINDOW_MAX_NS) {
		window->end_ns = ns;
		return;
	}
	window = window_new(periods, ns, period);
	window->before = window->after = *now;
	periods->open = periods->start_unknown = 1;
}

static __always_inline bool is_reused(const struct cpu_throttle_periods *periods,
				      const struct cpu_throttle_totals *now)
{
	return now->throttled_ns < periods->last.throttled_ns ||
	       now->periods < periods->last.periods;
}

/* Creates the entry of a group that is new, or that reuses the address of a deleted group. */
static __always_inline struct cpu_throttle_periods *
periods_new(__u64 key, const struct cpu_throttle_totals *now)
{
	struct cpu_throttle_periods *periods;

	bpf_map_update_elem(&cpu_throttle_groups, &key, &no_periods, BPF_ANY);
	periods = bpf_map_lookup_elem(&cpu_throttle_groups, &key);
	if (periods) {
		periods->first = periods->last = *now;
		periods->first_ns = bpf_ktime_get_ns();
	}
	return periods;
}

static __noinline int on_period(__u64 key, __u64 ns)
{
	struct task_group *group = (struct task_group *)key;
	struct cpu_throttle_periods *periods = bpf_map_lookup_elem(&cpu_throttle_groups, &key);
	__u64 period = BPF_CORE_READ(group, cfs_bandwidth.period);
	__u64 list = key + bpf_core_field_offset(struct task_group, cfs_bandwidth) +
		     bpf_core_field_offset(struct cfs_bandwidth, throttled_cfs_rq);
	bool throttled = (__u64)BPF_CORE_READ(group, cfs_bandwidth.throttled_cfs_rq.next) != list;
	struct cpu_throttle_totals now = {};

	read_totals(&now, group);
	if (!periods || is_reused(periods, &now))
		periods = periods_new(key, &now);
	if (!periods)
		return 0;
	account_period(periods, &now, ns, period);
	if (throttled)
		quota_exhausted(periods, &now, ns, period);
	else
		periods->open = 0;
	periods->last = now;
	return 0;
}

/*
 * Every high-resolution timer of the kernel, in a hard interrupt: a single comparison for timers of
 * no quota.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(cpu_throttle_timer, struct hrtimer *timer)
{
	__u64 address;

	if ((__u64)timer->function != period_function || !period_function)
		return 0;
	periods_ended++;
	bpf_probe_read_kernel(&address, sizeof(address), &timer);
	on_period(address - bpf_core_field_offset(struct cfs_bandwidth, period_timer) -
			  bpf_core_field_offset(struct task_group, cfs_bandwidth),
		  bpf_ktime_get_ns());
	return 0;
}

/* ---- processes ---- */

static __always_inline void fill_event(struct cpu_throttle_event *ret, struct task_struct *leader,
				       struct task_group *group)
{
	struct cgroup *cgroup = BPF_CORE_READ(group, css.cgroup);
	__u64 key = (__u64)group;
	struct cpu_throttle_periods *periods = bpf_map_lookup_elem(&cpu_throttle_groups, &key);

	header_set_task(&ret->header, leader);
	ret->header.tid = ret->header.host_tid = 0;
	ret->header.ident = 0;
	ret->header.start_ns = BPF_CORE_READ(leader, start_time);
	ret->group = key;
	ret->cgroup_id = BPF_CORE_READ(cgroup, kn, id);
	ret->level = BPF_CORE_READ(cgroup, level);
	ret->quota_ns = BPF_CORE_READ(group, cfs_bandwidth.quota);
	ret->period_ns = BPF_CORE_READ(group, cfs_bandwidth.period);
	__builtin_memset(ret->name, 0, sizeof(ret->name));
	bpf_probe_read_kernel_str(ret->name, sizeof(ret->name), BPF_CORE_READ(cgroup, kn, name));
	if (periods)
		bpf_probe_read_kernel(&ret->periods, sizeof(ret->periods), periods);
	else
		__builtin_memset(&ret->periods, 0, sizeof(ret->periods));
	/* read after the windows, so never less than the windows' totals */
	read_totals(&ret->now, group);
	ret->header.end_ns = bpf_ktime_get_ns();
}

/* Run by user space every second, for each thread: a record per tracked process and quota. */
SEC("iter/task")
int cpu_throttle_ask(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct cpu_throttle_event *event;
	__u32 tgid, pid, scratch = 0;
	struct task_group *group;

	if (!task)
		return 0;
	group = BPF_CORE_READ(task, sched_task_group);
	if (!period_function && group)
		period_function = (__u64)BPF_CORE_READ(group, cfs_bandwidth.period_timer.function);
	tgid = BPF_CORE_READ(task, tgid);
	pid = BPF_CORE_READ(task, pid);
	if (pid != tgid || !process_tracked(tgid))
		return 0;
	event = bpf_map_lookup_elem(&cpu_throttle_scratch, &scratch);
	if (!event)
		return 0;
	for (int i = 0; i < MAX_LEVELS && group; i++) {
		if (BPF_CORE_READ(group, cfs_bandwidth.quota) != NO_QUOTA) {
			fill_event(event, task, group);
			event->ended = 0;
			bpf_map_update_elem(&cpu_throttle_watched, &tgid, &scratch, BPF_ANY);
			/* no room: the kernel calls again with the same task */
			if (bpf_seq_write(ctx->meta->seq, event, sizeof(*event)))
				return 0;
		}
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}

/* In the exiting thread; the last thread of a process saves the final figures. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(cpu_throttle_exit, struct task_struct *task)
{
	struct ended_key key = { .host_pid = task->tgid };
	struct task_group *group = BPF_CORE_READ(task, sched_task_group);
	struct cpu_throttle_event *event;
	__u32 scratch = 1;

	if (BPF_CORE_READ(task, signal, live.counter) > 0 ||
	    bpf_map_delete_elem(&cpu_throttle_watched, &key.host_pid))
		return 0;
	event = bpf_map_lookup_elem(&cpu_throttle_scratch, &scratch);
	if (!event)
		return 0;
	for (int i = 0; i < MAX_LEVELS && group; i++) {
		key.level = i;
		if (BPF_CORE_READ(group, cfs_bandwidth.quota) != NO_QUOTA) {
			fill_event(event, BPF_CORE_READ(task, group_leader), group);
			event->ended = 1;
			if (bpf_map_update_elem(&cpu_throttle_ended, &key, event, BPF_ANY)) {
				stat_add(STAT_SEEN, 1);
				stat_add(STAT_LOST_STATE, 1);
			}
		}
		group = BPF_CORE_READ(group, parent);
	}
	return 0;
}
