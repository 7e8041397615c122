// SPDX-License-Identifier: Apache-2.0
/*
 * The spans of a trace for `underspan explain`, with their rows of the view request_time_parts. See
 * spans.h.
 */
#include "commands/explain/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/explain/ask.h"
#include "commands/explain/message.h"
#include "commands/explain/steps.h"
#include "commands/explain/timeline.h"
#include "base/log.h"
#include "base/util.h"

/* ---- the trace's spans ---- */

/* In seconds; 0: no span. */
static int find_time(struct clickhouse_client *client, const char *trace_id, int64_t *ret_first,
		     int64_t *ret_last, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_trace_id", trace_id }, { 0 } };
	json_t *when = NULL;
	int err = explain_ask(client, "explain/when.sql", params, &when, why);

	if (err == NO_SUCH_TABLE || (!err && !json_array_size(when))) {
		json_decref(when);
		when = NULL;
		err = explain_ask(client, "explain/when_spans.sql", params, &when, why);
	}
	*ret_first = explain_number(json_array_get(when, 0), "first");
	*ret_last = explain_number(json_array_get(when, 0), "last");
	json_decref(when);
	return err;
}

/* Of a trace id that is used again for days, the last hours. */
int explain_find_spans(struct clickhouse_client *client, const char *trace_id, json_t **ret_spans,
		       struct why *why)
{
	char first[24], last[24];
	const struct clickhouse_param params[] = { { "param_trace_id", trace_id },
						   { "param_first", first },
						   { "param_last", last },
						   { 0 } };
	int64_t first_s = 0, last_s = 0, first_us, last_us;
	int err = find_time(client, trace_id, &first_s, &last_s, why);

	if (err)
		return err;
	if (!last_s) {
		*ret_spans = json_array();
		return *ret_spans ? 0 : why_fail(why, ENOMEM, "out of memory");
	}
	first_us = first_s * US_PER_SEC;
	last_us = last_s * US_PER_SEC;
	explain_keep_hours(trace_id, "spans", last_us, &first_us, &last_us);
	snprintf(first, sizeof(first), "%lld", (long long)(first_us / US_PER_SEC));
	snprintf(last, sizeof(last), "%lld", (long long)last_s);
	return explain_ask(client, "explain/spans.sql", params, ret_spans, why);
}

/* Range of start times of the trace's server spans; false: none. */
static bool server_window(const json_t *spans, int64_t *ret_from, int64_t *ret_to)
{
	const json_t *span;
	bool found = false;
	size_t i;

	json_array_foreach (spans, i, span) {
		int64_t start = explain_number(span, "start_us");

		if (strcmp(explain_text(span, "kind"), "server") != 0)
			continue;
		if (!found || start < *ret_from)
			*ret_from = start;
		if (!found || start >= *ret_to)
			*ret_to = start + 1;
		found = true;
	}
	return found;
}

static json_t *span_by_id(const json_t *spans, const char *id)
{
	json_t *span;
	size_t i;

	json_array_foreach (spans, i, span) {
		if (!strcmp(explain_text(span, "kind"), "server") &&
		    !strcmp(explain_text(span, "span_id"), id))
			return span;
	}
	return NULL;
}

/* Attaches the row of request_time_parts to each server span without a request in the ledger. */
static int find_parts(struct clickhouse_client *client, const char *trace_id, json_t *spans,
		      struct why *why)
{
	int64_t from_us = 0, to_us = 0;
	char from[32], to[32];
	AUTO_FREE char *pids = explain_numbers(spans, "pid", "server");
	const struct clickhouse_param params[] = { { "param_trace_id", trace_id },
						   { "param_pids", pids },
						   { "param_from", from },
						   { "param_to", to },
						   { 0 } };
	json_t *rows = NULL, *row;
	size_t i;
	int err;

	if (!server_window(spans, &from_us, &to_us))
		return 0;
	if (!pids)
		return why_fail(why, ENOMEM, "out of memory");
	snprintf(from, sizeof(from), "%lld.%06lld", (long long)(from_us / 1000000),
		 (long long)(from_us % 1000000));
	snprintf(to, sizeof(to), "%lld.%06lld", (long long)(to_us / 1000000),
		 (long long)(to_us % 1000000));
	err = explain_ask_parts(client, params, &rows, why);
	if (err == NO_SUCH_TABLE)
		return why_fail(why, ENOENT,
				"the tables or views here are missing or of another version: run "
				"'underspan schema --apply'");
	json_array_foreach (rows, i, row) {
		json_t *span = span_by_id(spans, explain_text(row, "span_id"));

		if (span && !json_object_get(span, "request_id"))
			json_object_set(span, "request", row);
	}
	json_decref(rows);
	return err;
}

/* ---- events inside spans ---- */

/* A smaller share of waits for the network is not examined. */
enum { NET_SHARE = 10 };

static int look_under(struct clickhouse_client *client, json_t *span, struct why *why)
{
	const json_t *request = json_object_get(span, "request");
	int64_t start = explain_number(request, "start_us"),
		end = explain_number(request, "end_us");
	int64_t from = explain_number(request, "from_us"), to = explain_number(request, "to_us");
	int64_t pickup = explain_number(request, "handoff_to_us");
	int err = 0;

	if (!explain_number(request, "measured"))
		return 0;
	if (pickup)
		err = explain_attach(client, span, request, "handoff", "explain/handoff.sql",
				     pickup, pickup, why);
	if (!err)
		err = explain_attach(client, span, request, "gc", "explain/gc.sql", from, to, why);
	if (!err)
		err = explain_attach(client, span, request, "throttle", "explain/throttle.sql",
				     from, to, why);
	if (!err)
		err = explain_attach(client, span, request, "waits", "explain/waits.sql", start,
				     end, why);
	if (!err)
		message_name_waits(json_object_get(span, "waits"));
	if (!err && explain_ms(request, "net_ms") * NET_SHARE >= explain_ms(request, "total_ms"))
		err = explain_attach(client, span, request, "connections",
				     "explain/connections.sql", start, end, why);
	return err;
}

static bool is_server_without_request(const json_t *span)
{
	return !strcmp(explain_text(span, "kind"), "server") &&
	       !json_object_get(span, "request_id");
}

int explain_span_parts(struct clickhouse_client *client, const char *trace_id, json_t *spans,
		       struct why *why)
{
	bool wanted = false;
	json_t *span;
	size_t i;
	int err;

	json_array_foreach (spans, i, span)
		wanted = wanted || is_server_without_request(span);
	err = wanted ? find_parts(client, trace_id, spans, why) : 0;
	json_array_foreach (spans, i, span) {
		if (!err && json_object_get(span, "request"))
			err = look_under(client, span, why);
	}
	return err;
}
