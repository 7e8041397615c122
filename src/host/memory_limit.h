/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limit of this process: the smallest of its memory cgroup (version 1 or 2) and all
 * ancestors. Since Linux 5.11 BPF maps are charged, too.
 */
#ifndef UNDERSPAN_HOST_MEMORY_LIMIT_H
#define UNDERSPAN_HOST_MEMORY_LIMIT_H

#include "base/util.h"

struct memory_cgroup {
	char mount[256], path[1024]; /* "/sys/fs/cgroup", "/system.slice/underspan.service" or "" */
	bool is_v2;
};

/* UINT64_MAX: no visible limit. */
uint64_t memory_limit(void);

/* From the texts of /proc/PID/cgroup and /proc/PID/mountinfo. -ENOENT: no such cgroup
 * is mounted. */
int memory_cgroup_find(const char *cgroups, const char *mounts, struct memory_cgroup *ret);

#endif
