/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an event's header to the common columns: host, container and pod, names. Look-ups only;
 * expensive results are cached within bounds.
 */
#ifndef UNDERSPAN_ROWS_ENRICH_H
#define UNDERSPAN_ROWS_ENRICH_H

#include "rows/row.h"
#include "rows/row_context.h"

/* `host` NULL: the machine's name. */
void enrich_init(const char *host);
void enrich_done(void);

const char *enrich_host(void);

/* Strings in `ret` are borrowed; valid until the next event. */
void enrich_event(struct row_context *context, const struct event_header *header,
		  struct row_common *ret);

/* Container and pod of a process by host pid; '': none. Times: CLOCK_MONOTONIC. */
void enrich_identity(uint32_t host_pid, uint64_t cgroup_id, uint64_t event_ns,
		     const char **ret_container_id, const char **ret_pod_uid);

/* A process ended or called exec(): cached data of the pid are stale. */
void enrich_process_gone(uint32_t host_pid);

#endif
