/* SPDX-License-Identifier: Apache-2.0 */
/* `underspan top --once --json`. */
#ifndef UNDERSPAN_COMMANDS_TOP_JSON_H
#define UNDERSPAN_COMMANDS_TOP_JSON_H

#include <jansson.h>

#include "commands/top/view.h"

/*
 * {duration_s, processes: [{host_pid, comm, service, gil_measured, requests, hidden_share,
 * hidden_is_least, busy_max, waiting_max, lag_ns, shares, request_parts_ns, threads: [{name,
 * threads, shares}], lines: [{line, shares}]}], left_out}. Shares: of the duration, by part; null:
 * not measured. hidden_is_least: requests lacked hidden parts. NULL: out of memory.
 *
 * Of two windows: `processes`, their number, instead of host_pid; in each process, thread and line
 * `before` with the same figures; and `before`: {duration_s, not_measured, left_out}.
 */
json_t *top_json(struct top_sums *sums, const struct top_view *view);

#endif
