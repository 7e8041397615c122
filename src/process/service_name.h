/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name that a process's OpenTelemetry SDK gives its spans: OTEL_SERVICE_NAME, else service.name
 * in OTEL_RESOURCE_ATTRIBUTES (OpenTelemetry's "Environment Variable Specification"), as they were
 * when the program started. /proc/PID/environ is memory of the process: a reader process reads it.
 */
#ifndef UNDERSPAN_PROCESS_SERVICE_NAME_H
#define UNDERSPAN_PROCESS_SERVICE_NAME_H

#include <stddef.h>

#include "process/process.h"

/* Begins to read the process's `service`, if it is SERVICE_UNREAD. Collector thread. */
void service_name_read(struct process *process);

/* `environment`: `size` bytes of NUL-terminated NAME=VALUE. `ret`: printable; "": none. */
void service_name_parse(const char *environment, size_t size, char ret[SERVICE_NAME_MAX + 1]);

#endif
