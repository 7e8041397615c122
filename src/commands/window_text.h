/* SPDX-License-Identifier: Apache-2.0 */
/* Texts about a window of a database, from the report of a command: host, service, pids, times. */
#ifndef UNDERSPAN_COMMANDS_WINDOW_TEXT_H
#define UNDERSPAN_COMMANDS_WINDOW_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* "service checkout on web-1", "processes 12, 34", "all services". May contain untrusted names. */
void window_text(const json_t *report, char *buf, size_t size);

/* "2026-11-23 18:00:00 to 18:10:00 UTC, measured for 600.0 s": from_us, to_us, measured_s. */
void window_time_text(const json_t *report, char *buf, size_t size);

/* report["notes"], a line each, to stdout. */
void window_print_notes(const json_t *report);

#endif
