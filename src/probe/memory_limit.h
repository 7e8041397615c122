/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process may take: the limit of its memory cgroup, of either version, and of
 * those above it. From Linux 5.11 on the BPF maps of a process count, too.
 */
#ifndef UNDERSPAN_PROBE_MEMORY_LIMIT_H
#define UNDERSPAN_PROBE_MEMORY_LIMIT_H

#include "util.h"

struct memory_cgroup {
	char mount[256], path[1024]; /* "/sys/fs/cgroup", "/system.slice/underspan.service" or "" */
	bool is_v2;
};

/* UINT64_MAX: there is none, or none that can be seen. */
uint64_t memory_limit(void);

/* From the texts of /proc/PID/cgroup and /proc/PID/mountinfo. -ENOENT: no such cgroup is mounted.
 */
int memory_cgroup_find(const char *cgroups, const char *mounts, struct memory_cgroup *ret);

#endif
