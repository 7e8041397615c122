/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container and Kubernetes pod of a process, from cgroup names: container runtimes put the ids
 * there. The text comes from the kernel, but a container may choose names below the container's
 * cgroup: unknown names are not containers.
 */
#ifndef UNDERSPAN_HOST_CGROUP_H
#define UNDERSPAN_HOST_CGROUP_H

#include <stdbool.h>

#include "base/util.h"

enum { CONTAINER_ID_MAX = 64, POD_UID_MAX = 36 };

struct cgroup_identity {
	char container_id[CONTAINER_ID_MAX + 1]; /* 64 hex digits, or the form of ECS; "": none */
	char pod_uid[POD_UID_MAX + 1];		 /* with dashes, or 32 hex digits; "": none */
};

/* `text`: /proc/PID/cgroup, lines "id:controllers:path" of version 1 or "0::path" of version 2. */
void cgroup_identity(const char *text, struct cgroup_identity *ret);

/*
 * The same by the path in the version 2 hierarchy only. True: no other hierarchy exists, so the
 * cgroup id identifies the container.
 */
bool cgroup_unified_identity(const char *text, struct cgroup_identity *ret);

/*
 * The systemd unit of a process without ".service", "" if there is none. Returns `ret`. A user's
 * own unit is found below the user's manager ("user@1000.service").
 */
enum { CGROUP_UNIT_MAX = 64 };
const char *cgroup_unit(const char *text, char ret[CGROUP_UNIT_MAX + 1]);

/*
 * A number for the tenant of the host to which a process belongs: the outermost container or pod,
 * the user of a login session (odd numbers); otherwise the service or cgroup, possibly of several
 * users (even numbers). 0: none, only in the first cgroup. Cgroups made by a tenant belong to the
 * same tenant.
 */
uint32_t cgroup_tenant(const char *text);

#endif
