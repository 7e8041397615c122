/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names under which people know a process, as labels of metrics: its systemd unit, else the
 * name of its main thread; its container and pod.
 */
#ifndef UNDERSPAN_ROWS_SERVICES_H
#define UNDERSPAN_ROWS_SERVICES_H

#include <stdint.h>

enum { SERVICE_LABELS_MAX = 384 };

/* A process appeared or called exec(): what was known of the pid is forgotten. */
void services_forget(uint32_t host_pid);

/*
 * The labels of a process (base/exposition.h). They are kept for some time after its end; for a
 * process that was never seen alive the service is `comm`. Valid until the next call.
 */
const char *services_labels(uint32_t host_pid, uint64_t cgroup_id, const char *comm,
			    uint64_t now_ns);

void services_free(void);

#endif
