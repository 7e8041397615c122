/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request ledger for `underspan explain`: rows of the view request, with events of the same
 * time.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_LEDGER_H
#define UNDERSPAN_COMMANDS_EXPLAIN_LEDGER_H

#include <jansson.h>

#include "clickhouse/client.h"

enum { REQUESTS_SHOWN = 100, REQUESTS_DETAILED = 20 }; /* REQUESTS_SHOWN: as in requests.sql */

/* Selects requests: by trace, or by id. The unused member is "" or "0". */
struct ledger_wanted {
	const char *trace_id;
	const char *request_id;
};

/*
 * Rows of explain/requests.sql, an empty array without rows or table; REQUESTS_SHOWN + 1 rows mean
 * that more exist. The first REQUESTS_DETAILED have "threads", a number, and "meanwhile", "gc",
 * "throttle", "waits", "places", "holders" and, of a loop whose requests other threads worked for,
 * "pool": rows of sql/explain/. `spans`: the spans of the trace; the spans' threads identify
 * requests without a trace id. `second`: a client for questions at the same time, see beside.h;
 * NULL: one after the other.
 */
int ledger_find(struct clickhouse_client *client, struct clickhouse_client *second,
		const struct ledger_wanted *wanted, const json_t *spans, json_t **ret_requests,
		struct why *why);

/* Has the request's "not_measured" this reason? */
bool ledger_lacks(const json_t *request, const char *reason);

/* Sets "request_id" of each span that belongs to a request. */
void ledger_name_spans(const json_t *requests, json_t *spans);

#endif
