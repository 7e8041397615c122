/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which container and which Kubernetes pod a process belongs to, from the names of its cgroups:
 * container runtimes put their ids there. The text comes from the kernel, but a container may
 * choose names within its own cgroup: anything unknown is no container.
 */
#ifndef UNDERSPAN_PROBE_CGROUP_H
#define UNDERSPAN_PROBE_CGROUP_H

#include "util.h"

enum { CONTAINER_ID_MAX = 64, POD_UID_MAX = 36 };

struct cgroup_identity {
	char container_id[CONTAINER_ID_MAX + 1]; /* 64 hex digits, or as ECS has it; "" none */
	char pod_uid[POD_UID_MAX + 1];		 /* with dashes, or 32 hex digits; "" none */
};

/* `text`: /proc/PID/cgroup, lines "id:controllers:path" of version 1 or "0::path" of version 2. */
void cgroup_identity(const char *text, struct cgroup_identity *ret);

#endif
