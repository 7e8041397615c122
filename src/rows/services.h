/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The human-readable names of a process. Service: the name given to the OpenTelemetry SDK
 * (process/service_name.h), otherwise the Kubernetes container, the systemd unit, or the main
 * thread's name. Pod, namespace and container: host/container_names.h. Collector thread only.
 */
#ifndef UNDERSPAN_ROWS_SERVICES_H
#define UNDERSPAN_ROWS_SERVICES_H

#include <stdint.h>

#include "process/process.h"

enum { SERVICE_LABELS_MAX = 384 };

/* All borrowed; "": none. */
struct service_names {
	const char *service;
	const char *namespace, *pod, *container; /* Kubernetes' */
	const char *labels; /* of metrics (base/exposition.h): service, container_id, pod_uid */
};

/*
 * `process`: NULL if not a Python. A process never seen alive is called `comm`. Valid until the
 * next call. `now_ns`: CLOCK_MONOTONIC.
 */
struct service_names services_find(struct process *process, uint32_t host_pid, uint64_t cgroup_id,
				   const char *comm, uint64_t now_ns);

/* The same process's `labels`. */
const char *services_labels(uint32_t host_pid, uint64_t cgroup_id, const char *comm,
			    uint64_t now_ns);

/* A process appeared, ended or called exec(): names of a live process are read again. */
void services_refresh(uint32_t host_pid);

void services_free(void);

#endif
