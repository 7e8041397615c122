/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Throttling of a process by a CPU quota: bpf/cpu_throttle.bpf.c -> src/trackers/cpu_throttle.c. */
#ifndef UNDERSPAN_EVENTS_CPU_THROTTLE_H
#define UNDERSPAN_EVENTS_CPU_THROTTLE_H

#include "events/event.h"

enum { CPU_THROTTLE_WINDOWS = 8, CPU_THROTTLE_NAME = 96 };

/* Counters of a cgroup, as in cpu.stat. */
struct cpu_throttle_totals {
	__u64 throttled_ns;
	__u32 periods;
	__u32 throttled_periods;
};

/* Consecutive quota periods that were exhausted. */
struct cpu_throttle_window {
	__u64 start_ns;
	__u64 end_ns;
	struct cpu_throttle_totals before, after;
};

/* The seen periods of a cgroup; window number i is at index i % CPU_THROTTLE_WINDOWS. */
struct cpu_throttle_periods {
	struct cpu_throttle_totals first; /* when a period's end was seen first... */
	__u64 first_ns;
	struct cpu_throttle_totals last; /* ...and last */
	__u64 n_windows;		 /* so far */
	__u32 open;			 /* the last window may go on */
	__u32 start_unknown; /* the first period of the last window is not accounted so far */
	struct cpu_throttle_window windows[CPU_THROTTLE_WINDOWS];
};

/* A tracked process and a cgroup with a quota above it; header.end_ns: time of the query. */
struct cpu_throttle_event {
	struct event_header header; /* tid, host_tid 0; start_ns: start of the process */
	__u64 group;		    /* struct task_group *, only a name */
	__u64 cgroup_id;
	__u64 quota_ns;
	__u64 period_ns;
	struct cpu_throttle_totals now;
	struct cpu_throttle_periods periods;
	__u32 level;		      /* of the cgroup, below the root */
	__u32 ended;		      /* the process has exited: final figures */
	char name[CPU_THROTTLE_NAME]; /* of the cgroup's directory */
};

#endif
