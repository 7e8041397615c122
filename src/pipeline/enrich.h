/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an event's header to the common columns: host, container and pod, names. Everything here
 * is a look-up; what costs more is done once and remembered within bounds.
 */
#ifndef UNDERSPAN_ENRICH_H
#define UNDERSPAN_ENRICH_H

#include "pipeline/row.h"

/* `host` NULL: the machine's own name. */
void enrich_init(const char *host);
void enrich_done(void);

const char *enrich_host(void);

/* The strings in `ret` are borrowed and live until the next event. */
void enrich_event(const struct event_header *header, struct row_common *ret);

/* Container and pod of a process by its host pid; '' where there is none. Times: CLOCK_MONOTONIC.
 */
void enrich_identity(uint32_t host_pid, uint64_t cgroup_id, uint64_t event_ns,
		     const char **ret_container_id, const char **ret_pod_uid);

/* A process ended: what was remembered under its pid must not outlive it. */
void enrich_process_gone(uint32_t host_pid);

#endif
