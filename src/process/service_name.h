/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service name of a process's OpenTelemetry SDK: OTEL_SERVICE_NAME, otherwise service.name in
 * OTEL_RESOURCE_ATTRIBUTES (OpenTelemetry's "Environment Variable Specification"), at the program's
 * start. /proc/PID/environ is memory of the process: read by a reader process.
 */
#ifndef UNDERSPAN_PROCESS_SERVICE_NAME_H
#define UNDERSPAN_PROCESS_SERVICE_NAME_H

#include <stddef.h>

#include "process/process.h"

/*
 * Begins to read the process's `service` if SERVICE_UNREAD; after a failure, not for 30 s.
 * `now_ns`: CLOCK_MONOTONIC. Collector thread.
 */
void service_name_read(struct process *process, uint64_t now_ns);

/* `environment`: `size` bytes of NUL-terminated NAME=VALUE. `ret`: printable; "": none. */
void service_name_parse(const char *environment, size_t size, char ret[SERVICE_NAME_MAX + 1]);

#endif
