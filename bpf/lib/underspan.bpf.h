/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every BPF object shares: its ring buffer and counters, the one way to emit an event,
 * a thread's identity, and the map of tracked processes.
 */
#ifndef UNDERSPAN_BPF_H
#define UNDERSPAN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "events/event.h"
#include "events/process.h"

/*
 * A tracker's ring buffer and counters. The ring is sized by user space before loading; the size
 * here is only a valid one.
 */
#define TRACKER_MAPS(prefix)                                                                       \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_RINGBUF);                                                \
		__uint(max_entries, 1 << 18);                                                      \
	} prefix##events SEC(".maps");                                                             \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                           \
		__uint(max_entries, STAT_MAX);                                                     \
		__type(key, __u32);                                                                \
		__type(value, __u64);                                                              \
	} prefix##stats SEC(".maps");                                                              \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1);                                                            \
		__type(key, __u32);                                                                \
		__type(value, struct sampling);                                                    \
	} prefix##sampling SEC(".maps")

#ifndef TRACKERS_SHARE_THIS_OBJECT /* else it says TRACKER_MAPS(stem_) for each of them */
TRACKER_MAPS();
#endif

/* Tracked processes by host pid. bpf/process.bpf.c owns it, the other objects are given its fd. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_info);
} processes SEC(".maps");

/*
 * The reader polls every 100 ms; it is woken earlier only when this many bytes wait, and then once
 * for each such piece that is written, not for each event. A power of two.
 */
const volatile __u64 wakeup_bytes = 1 << 16;

static __always_inline void stat_add_in(void *stats_map, __u32 stat, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(stats_map, &stat);

	if (value)
		*value += n;
}

/* A zeroed event of the ring buffer, or NULL, counted. End with event_submit() on every path. */
static __always_inline void *event_reserve_in(void *events_map, void *stats_map, __u64 size)
{
	void *event = bpf_ringbuf_reserve(events_map, size, 0);

	if (!event) {
		stat_add_in(stats_map, STAT_LOST_RING, 1);
		return NULL;
	}
	__builtin_memset(event, 0, size);
	return event;
}

/*
 * Does the governor leave the event in? Chance decides, and how long it lasted. Counts the others.
 * All events begin with their header, but those of bpf/process.bpf.c, which nobody turns down.
 */
static __always_inline bool event_kept_in(void *sampling_map, void *stats_map,
					  struct event_header *header)
{
	__u32 zero = 0;
	struct sampling *sampling = bpf_map_lookup_elem(sampling_map, &zero);
	__u32 level = sampling ? sampling->level : 0;

	if (!level)
		return true;
	if (bpf_get_prandom_u32() >=
	    sampling_probability(header->end_ns - header->start_ns, level)) {
		stat_add_in(stats_map, STAT_SAMPLED, 1);
		return false;
	}
	header->sampling_level = level;
	return true;
}

/*
 * Waking the reader for each event would preempt the very threads that are measured, and in a storm
 * of context switches be part of the storm. `size`: of the event that is about to be submitted.
 */
static __always_inline __u64 wakeup_flag(void *events_map, __u64 size)
{
	__u64 written;

	if (bpf_ringbuf_query(events_map, BPF_RB_AVAIL_DATA) < wakeup_bytes)
		return BPF_RB_NO_WAKEUP;
	written = bpf_ringbuf_query(events_map, BPF_RB_PROD_POS);
	/* did its bytes begin a piece? One that two CPUs miss together, the next makes up for */
	return (written ^ (written - size)) & ~(wakeup_bytes - 1) ? BPF_RB_FORCE_WAKEUP
								  : BPF_RB_NO_WAKEUP;
}

static __always_inline void event_submit_sized(void *events_map, void *stats_map,
					       void *sampling_map, void *event, __u64 size)
{
	if (event_kept_in(sampling_map, stats_map, event))
		bpf_ringbuf_submit(event, wakeup_flag(events_map, size));
	else
		bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
}

/* `event` points to the whole struct that was reserved. */
#define event_submit_in(events_map, stats_map, sampling_map, event)                                \
	event_submit_sized(events_map, stats_map, sampling_map, event, sizeof(*(event)))

/* Sends an event that was made elsewhere, with what follows it. */
static __always_inline void event_output_in(void *events_map, void *stats_map, void *sampling_map,
					    void *event, __u64 size)
{
	if (!event_kept_in(sampling_map, stats_map, event))
		return;
	if (bpf_ringbuf_output(events_map, event, size, wakeup_flag(events_map, size)))
		stat_add_in(stats_map, STAT_LOST_RING, 1);
}

#ifndef TRACKERS_SHARE_THIS_OBJECT
static __always_inline void stat_add(__u32 stat, __u64 n)
{
	stat_add_in(&stats, stat, n);
}

static __always_inline void *event_reserve(__u64 size)
{
	return event_reserve_in(&events, &stats, size);
}

#define event_submit(event) event_submit_in(&events, &stats, &sampling, event)

static __always_inline void event_output(void *event, __u64 size)
{
	event_output_in(&events, &stats, &sampling, event, size);
}
#endif

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline __u32 current_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

static __always_inline bool process_tracked(__u32 tgid)
{
	const struct process_info *info = bpf_map_lookup_elem(&processes, &tgid);

	return info && info->flags != PROCESS_REFUSED;
}

static __always_inline bool process_refused(__u32 tgid)
{
	const struct process_info *info = bpf_map_lookup_elem(&processes, &tgid);

	return info && info->flags & PROCESS_REFUSED;
}

/* The task's id in its innermost PID namespace: what os.getpid() and gettid() say inside. */
static __always_inline __u32 task_ns_id(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	struct upid upid;

	/* numbers[] grows with the level; PID namespaces nest 32 deep at most (MAX_PID_NS_LEVEL) */
	if (level > 32)
		return 0;
	bpf_core_read(&upid, sizeof(upid),
		      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			      level * bpf_core_type_size(struct upid));
	return upid.nr;
}

/*
 * The thread's pthread_self(), which is threading.get_ident() of Python: on x86-64 the C libraries
 * let the thread pointer point to it. On arm64 they have it at some distance below that they do not
 * tell.
 */
static __always_inline __u64 task_ident(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return 0;
#endif
}

/* Fills everything but the times with a thread that need not be the current one. */
static __always_inline void header_set_task(struct event_header *header, struct task_struct *task)
{
	header->host_pid = BPF_CORE_READ(task, tgid);
	header->host_tid = BPF_CORE_READ(task, pid);
	header->pid = task_ns_id(BPF_CORE_READ(task, group_leader));
	header->tid = task_ns_id(task);
	header->ident = task_ident(task);
	header->cgroup_id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	BPF_CORE_READ_INTO(&header->comm, task, comm);
}

/* Fills everything but the times with the current thread. */
static __always_inline void header_set_current(struct event_header *header)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	header->host_pid = current_tgid();
	header->host_tid = current_tid();
	header->pid = task_ns_id(BPF_CORE_READ(task, group_leader));
	header->tid = task_ns_id(task);
	header->ident = task_ident(task);
	header->cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(header->comm, sizeof(header->comm));
}

#endif
