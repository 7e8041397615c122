/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of `underspan explain`: a timeline of the spans with events under them, then the sums of
 * each server span. Formats rows queried by explain.c; computes no sums.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_PRINT_H
#define UNDERSPAN_COMMANDS_EXPLAIN_PRINT_H

#include "commands/explain/timeline.h"

/*
 * `spans`: rows of explain/spans.sql; a server span has "request", a row of request_time_parts, and
 * "handoff", "gc", "throttle" and "waits", arrays of rows of sql/explain/. All texts are made
 * printable.
 */
void explain_print(const char *trace_id, const json_t *spans);

/* Why no server span has a measured part; NULL: one has. *ret_names_thread: false if it is because
 * the span does not name its process and thread. */
const char *explain_why_nothing(const json_t *spans, bool *ret_names_thread);

#endif
