/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container and pod of a process, from its cgroups; cached within bounds, also for processes that
 * ended before the first look-up. Collector thread only.
 */
#ifndef UNDERSPAN_ROWS_IDENTITIES_H
#define UNDERSPAN_ROWS_IDENTITIES_H

#include <stdint.h>

#include "host/cgroup.h"

/* By host pid and cgroup id (0 or 1: unknown). Borrowed until the next call. CLOCK_MONOTONIC. */
const struct cgroup_identity *identities_find(uint32_t host_pid, uint64_t cgroup_id,
					      uint64_t event_ns);

/* A process appeared, ended or called exec(): cached data of the pid are stale. */
void identities_refresh(uint32_t host_pid);

void identities_free(void);

#endif
