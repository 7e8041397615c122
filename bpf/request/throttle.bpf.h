/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The time for which CPU quotas have stopped the CPUs of a thread's cgroups. */
#ifndef UNDERSPAN_REQUEST_THROTTLE_BPF_H
#define UNDERSPAN_REQUEST_THROTTLE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>

/* Shorter waits in the run queue are not throttling. Quotas may be set at each level. */
enum { REQUEST_THROTTLED_MIN_NS = 1000000, REQUEST_QUOTA_LEVELS = 6 };

/*
 * Grows at the end of each throttling. Runs at every wake-up: plain loads of a pointer with a type
 * known to the verifier, since the same reads by bpf_probe_read_kernel() take 0.2 us.
 */
static __always_inline __u64 request_throttled_ns(struct task_struct *task)
{
	struct task_group *group = NULL;
	__u64 ns = 0;

	if (!bpf_core_field_exists(task->sched_task_group) ||
	    !bpf_core_field_exists(group->cfs_bandwidth))
		return 0;
	group = task->sched_task_group;
	for (int i = 0; i < REQUEST_QUOTA_LEVELS && group; i++) {
		if (group->cfs_bandwidth.quota != ~0ULL)
			ns += group->cfs_bandwidth.throttled_time;
		group = group->parent;
	}
	return ns;
}

#endif
