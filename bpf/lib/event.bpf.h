/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Emitting events: each tracker's ring buffer, its counters, and the governor's sampling. */
#ifndef UNDERSPAN_EVENT_BPF_H
#define UNDERSPAN_EVENT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "events/event.h"

/*
 * The maps of a tracker. User space sets the ring buffer's size before loading; the size here is a
 * placeholder.
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

/* An object with several trackers writes TRACKER_MAPS(stem_) for each tracker. */
#ifndef TRACKERS_SHARE_THIS_OBJECT
TRACKER_MAPS();
#endif

/*
 * Threshold for waking the reader, which polls every 100 ms. Below the threshold there is no
 * wake-up; above, a single wake-up per `wakeup_bytes` written. A power of two.
 */
const volatile __u64 wakeup_bytes = 1 << 16;

/* Adds to a per-CPU counter. Atomic, because an interrupt may run a program on the same CPU. */
static __always_inline void count_add(__u64 *counter, __u64 n)
{
	__sync_fetch_and_add(counter, n);
}

static __always_inline void stat_add_in(void *stats_map, __u32 stat, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(stats_map, &stat);

	if (value)
		count_add(value, n);
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
 * Decides by chance and by the event's duration whether the governor keeps the event; counts the
 * dropped events. Every event starts with its header, except those of bpf/process.bpf.c, which are
 * never sampled.
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
 * A wake-up per event would preempt the measured threads and add switches to a storm of switches.
 * `size`: of the event to be submitted.
 */
static __always_inline __u64 wakeup_flag(void *events_map, __u64 size)
{
	__u64 written;

	if (bpf_ringbuf_query(events_map, BPF_RB_AVAIL_DATA) < wakeup_bytes)
		return BPF_RB_NO_WAKEUP;
	written = bpf_ringbuf_query(events_map, BPF_RB_PROD_POS);
	/* crossed a multiple of wakeup_bytes? (the next multiple makes up for a race) */
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

/* `event` points to the reserved struct. */
#define event_submit_in(events_map, stats_map, sampling_map, event)                                \
	event_submit_sized(events_map, stats_map, sampling_map, event, sizeof(*(event)))

/* Sends an event built in a map, with the variable part behind it. */
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

#endif
