/* SPDX-License-Identifier: Apache-2.0 */
/* The request ledger for `underspan explain`: rows of the view request, with what was around them.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_LEDGER_H
#define UNDERSPAN_COMMANDS_EXPLAIN_LEDGER_H

#include <jansson.h>

#include "clickhouse/client.h"

enum { REQUESTS_SHOWN = 100, REQUESTS_DETAILED = 20 }; /* REQUESTS_SHOWN: as in requests.sql */

/* Which requests: of a trace, or one. The other is "" or "0". */
struct ledger_wanted {
	const char *trace_id;
	const char *request_id;
};

/*
 * Rows of explain/requests.sql, an empty array if there are none or no table; one more than
 * REQUESTS_SHOWN: there are more. The first REQUESTS_DETAILED have "threads", a number, and
 * "meanwhile", "gc", "throttle", "waits" and "holders", rows of sql/explain/. `spans`: those of the
 * trace, whose threads tell requests that carried no trace id.
 */
int ledger_find(struct clickhouse_client *client, const struct ledger_wanted *wanted,
		const json_t *spans, json_t **ret_requests, struct why *why);

/* Sets "request_id" of each span that is the span of a request. */
void ledger_name_spans(const json_t *requests, json_t *spans);

#endif
