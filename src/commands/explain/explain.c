// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan explain TRACE_ID|REQUEST_ID`: where the time of a request went. Requests come from the
 * ledger (the view request; ledger.c, causes.c, print_ledger.c), server spans without a request
 * there from the view request_time_parts (spans.c, print.c). Queries are in sql/explain/.
 *
 * All figures come from these two views. Two printers, as the views have different rows: parts of a
 * request are sums of the kernel, shares without an order in time, with a cause each; parts of a
 * span are intervals, on the timeline of its trace.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clickhouse/traces.h"
#include "commands/database.h"
#include "commands/commands.h"
#include "commands/explain/ask.h"
#include "commands/explain/causes.h"
#include "commands/explain/ledger.h"
#include "commands/explain/print.h"
#include "commands/explain/print_ledger.h"
#include "commands/explain/spans.h"
#include "commands/explain/timeline.h"
#include "commands/explain/page.h"
#include "commands/html_output.h"
#include "commands/json_output.h"
#include "base/config.h"
#include "base/log.h"

static bool as_json, as_html;

static const struct option options[] = {
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "everything as one JSON object: requests, spans, parts, intervals, causes, what "
		  "was not measured" },
	{ .key = "html",
	  .type = OPTION_BOOL,
	  .target = &as_html,
	  .help = HTML_OPTION_HELP,
	  .flag_only = true },
};

/* False: the list is complete. */
static bool cut_spans(const char *trace_id, json_t *spans)
{
	if (json_array_size(spans) <= SPANS_SHOWN)
		return false;
	json_array_remove(spans, SPANS_SHOWN);
	log_warn("trace %s has more than %d spans: the first %d by time are shown and explained; "
		 "ask request_time_parts for the others",
		 trace_id, SPANS_SHOWN, SPANS_SHOWN);
	return true;
}

static bool cut_requests(json_t *requests)
{
	if (json_array_size(requests) <= REQUESTS_SHOWN)
		return false;
	json_array_remove(requests, REQUESTS_SHOWN);
	log_warn("the trace has more than %d requests: the first %d by time are shown, %d of them "
		 "explained; ask the view request for the others",
		 REQUESTS_SHOWN, REQUESTS_SHOWN, REQUESTS_DETAILED);
	return true;
}

struct answer {
	struct ledger_wanted wanted;
	json_t *requests, *spans; /* arrays */
	bool cut;
};

static int print_json(const struct answer *a, struct why *why)
{
	json_t *root = json_pack("{s:s, s:s, s:b, s:O, s:O}", "trace_id", a->wanted.trace_id,
				 "request_id", a->wanted.request_id, "cut", a->cut, "requests",
				 a->requests, "spans", a->spans);
	int err = json_output_write(root);

	json_decref(root);
	return err ? why_fail(why, EIO, "cannot write the answer") : 0;
}

/* "GET /orders, 905.5 ms", otherwise the id. */
static void title_of(const struct answer *a, char *buf, size_t size)
{
	const json_t *r = json_array_get(a->requests, 0);

	if (json_array_size(a->requests) == 1)
		snprintf(buf, size, "%.40s %.300s, %.1f ms", explain_text(r, "method"),
			 explain_text(r, "path"), explain_ms(r, "duration_ms"));
	else
		snprintf(buf, size, "trace %.40s", a->wanted.trace_id);
}

static int print_html(const struct answer *a, struct why *why)
{
	json_t *body = json_pack("{s:b, s:O, s:O}", "cut", a->cut, "requests", a->requests, "spans",
				 a->spans);
	char title[400];
	int err;

	if (!body || explain_page_limit(a->requests, a->spans)) {
		json_decref(body);
		return why_fail(why, ENOMEM, "out of memory");
	}
	title_of(a, title, sizeof(title));
	err = html_output_write("explain", title, body, why);
	json_decref(body);
	return err;
}

static void print_text(const struct answer *a)
{
	print_ledger(a->requests);
	if (json_array_size(a->spans))
		explain_print(a->wanted.trace_id, a->spans);
}

/* ---- the command ---- */

static int find_spans(struct clickhouse_client *client, struct answer *a, bool *ret_view,
		      struct why *why)
{
	int err = 0;

	*ret_view = true;
	if (*a->wanted.trace_id)
		err = explain_find_spans(client, a->wanted.trace_id, &a->spans, why);
	*ret_view = err != NO_SUCH_TABLE;
	if (err == NO_SUCH_TABLE)
		err = 0;
	if (!err && !a->spans)
		a->spans = json_array();
	return err;
}

/* The table of spans has the id, but not as W3C trace context and all rows have it. */
static bool is_in_upper_case(struct clickhouse_client *client, const char *trace_id)
{
	const struct clickhouse_param params[] = { { "param_trace_id", trace_id }, { 0 } };
	struct why ignored;
	json_t *rows = NULL;
	bool found = !explain_ask(client, "explain/upper_case.sql", params, &rows, &ignored) &&
		     explain_number(json_array_get(rows, 0), "spans");

	json_decref(rows);
	return found;
}

enum { UNFOLLOWED_MAX = 512 };

/* "; not followed, and counted: on web-1 6 connections with TLS ...": why a request may have no
 * row. */
static const char *say_unfollowed(struct clickhouse_client *client, char *ret, size_t size)
{
	const struct clickhouse_param none[] = { { 0 } };
	struct why ignored;
	json_t *rows = NULL, *row;
	size_t i, n = 0;

	ret[0] = 0;
	if (explain_ask(client, "explain/unfollowed.sql", none, &rows, &ignored))
		return ret;
	json_array_foreach (rows, i, row) {
		if (n < size)
			n += (size_t)snprintf(
				ret + n, size - n, "%s on %.64s %.120s",
				i ? ";" : "; not followed, and counted:", explain_text(row, "host"),
				explain_text(row, "words"));
	}
	json_decref(rows);
	return ret;
}

static int nothing_found(struct clickhouse_client *client, const struct answer *a, bool view,
			 struct why *why)
{
	static const char ids[] = "underspan sql 'SELECT request_id, path, duration_ms FROM "
				  "ebpf_request ORDER BY start_time DESC LIMIT 20' lists ids";
	char unfollowed[UNFOLLOWED_MAX];

	if (!*a->wanted.trace_id)
		return why_fail(why, ENOENT, "no request %s in ebpf_request: %s",
				a->wanted.request_id, ids);
	if (!view)
		return why_fail(why, ENOENT,
				"no request of trace %s in ebpf_request, and no view otel_span "
				"here: once the OpenTelemetry collector has made otel_traces, run "
				"'underspan schema --apply' (with --traces=DATABASE.TABLE if the "
				"spans are elsewhere)%s",
				a->wanted.trace_id,
				say_unfollowed(client, unfollowed, sizeof(unfollowed)));
	if (is_in_upper_case(client, a->wanted.trace_id))
		return why_fail(why, ENOENT,
				"trace %s is in upper case in otel_traces, where neither explain "
				"nor a view finds it: what writes the table has to write trace ids "
				"in lower case, as the collector's exporter does",
				a->wanted.trace_id);
	return why_fail(why, ENOENT,
			"no span of trace %s in otel_traces, and no request with its traceparent "
			"in ebpf_request: %s%s",
			a->wanted.trace_id, ids,
			say_unfollowed(client, unfollowed, sizeof(unfollowed)));
}

static void tell_causes(json_t *requests)
{
	json_t *request;
	size_t i;

	json_array_foreach (requests, i, request) {
		json_t *before = i < REQUESTS_DETAILED ? cause_before_request(request) : NULL;

		if (i < REQUESTS_DETAILED)
			json_object_set_new(request, "causes", causes_of(request));
		if (before)
			json_object_set_new(request, "before", before);
	}
}

static int find_all(struct clickhouse_client *client, struct clickhouse_client *second,
		    struct answer *a, struct why *why)
{
	bool view;
	int err = find_spans(client, a, &view, why);

	if (!err)
		err = ledger_find(client, second, &a->wanted, a->spans, &a->requests, why);
	if (err)
		return err;
	if (!json_array_size(a->spans) && !json_array_size(a->requests))
		return nothing_found(client, a, view, why);
	a->cut = json_array_size(a->spans) && cut_spans(a->wanted.trace_id, a->spans);
	a->cut |= cut_requests(a->requests);
	ledger_name_spans(a->requests, a->spans);
	tell_causes(a->requests);
	return explain_span_parts(client, a->wanted.trace_id, a->spans, why);
}

static int explain(struct clickhouse_client *client, struct clickhouse_client *second,
		   const struct ledger_wanted *wanted, struct why *why)
{
	struct answer a = { .wanted = *wanted };
	char unfollowed[UNFOLLOWED_MAX];
	int err = find_all(client, second, &a, why);
	const char *nothing;
	bool names_thread;

	if (!err && as_json)
		err = print_json(&a, why);
	else if (!err && as_html)
		err = print_html(&a, why);
	else if (!err)
		print_text(&a);
	if (!err && !json_array_size(a.requests) &&
	    (nothing = explain_why_nothing(a.spans, &names_thread)))
		err = why_fail(why, ENODATA, "trace %s: nothing was measured: %s%s%s",
			       a.wanted.trace_id, nothing,
			       names_thread
				       ? ""
				       : ", which the wheel underspan-otel in the service sets: "
					 "`underspan doctor --spans` counts such spans",
			       say_unfollowed(client, unfollowed, sizeof(unfollowed)));
	json_decref(a.requests);
	json_decref(a.spans);
	return err;
}

/* An id: of a request, decimal (ebpf_request.request_id), or W3C trace context: 16 bytes as hex;
 * accepts dashes of a UUID and upper case. */
struct id {
	char trace[33], request[24];
};

static bool is_traceparent(const char *word)
{
	static const size_t ends[] = { 2, 35, 52, 55 };

	for (size_t i = 0, from = 0; i < ARRAY_SIZE(ends); from = ends[i++] + 1) {
		if (strspn(word + from, "0123456789abcdef") != ends[i] - from ||
		    word[ends[i]] != (i == 3 ? '\0' : '-'))
			return false;
	}
	return true;
}

/* The only 32 hex digits in a row, as in a link to a trace or in 0x...; NULL: none. */
static const char *trace_within(const char *word)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *found = NULL;
	size_t n;

	for (const char *at = word; *at; at += n ?: 1) {
		n = strspn(at, digits);
		if (n != 32)
			continue;
		if (found)
			return NULL;
		found = at;
	}
	return found;
}

static int parse_id(const char *word, struct id *ret, struct why *why)
{
	const char *inner;
	size_t n = 0, digits = strspn(word, "0123456789");
	char *end;

	*ret = (struct id){ .request = "0" };
	/* the header traceparent: 00-TRACE-SPAN-FLAGS */
	if (is_traceparent(word)) {
		snprintf(ret->trace, sizeof(ret->trace), "%.32s", word + 3);
		return 0;
	}
	errno = 0;
	if (digits && !word[digits] && digits <= 20) {
		unsigned long long id = strtoull(word, &end, 10);

		if (!errno && id) {
			snprintf(ret->request, sizeof(ret->request), "%llu", id);
			return 0;
		}
	}
	for (const char *c = word; *c; c++) {
		if (*c == '-')
			continue;
		if (!strchr("0123456789abcdefABCDEF", *c) || n == 32) {
			n = 0;
			break;
		}
		ret->trace[n++] = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
	}
	if (n == 32)
		return 0;
	inner = trace_within(word);
	if (inner)
		return why_fail(
			why, EINVAL,
			"'%.100s' is no trace id, but has one in it: `underspan explain %.32s`",
			word, inner);
	return why_fail(why, EINVAL,
			"'%.64s' is no trace id (32 hex digits) and no request id (a "
			"decimal number, ebpf_request.request_id)%s",
			word,
			n == 16 ? ": 16 hex digits are a span's id, give its trace id"
				: ": `underspan requests` lists both");
}

static int explain_on_target(const struct ledger_wanted *wanted, struct why *why)
{
	struct clickhouse_client *client = NULL, *second = NULL;
	struct clickhouse_target target;
	char table[256];
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_client_new(&target.endpoints[0], &client, why);
	if (!err)
		err = clickhouse_client_new(&target.endpoints[0], &second, why);
	if (!err && clickhouse_config.traces)
		err = traces_of_view(client, clickhouse_config.traces, table, why);
	if (!err)
		err = explain(client, second, wanted, why);
	clickhouse_client_free(second);
	clickhouse_client_free(client);
	clickhouse_release(&target);
	return err;
}

int command_explain(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       clickhouse_options,
					       { 0 } };
	struct why why = { { 0 } };
	struct id id;
	char *words[2];
	size_t n_words = 2;
	int err = config_parse(tables, argc, argv, words, &n_words, &why);

	if (err > 0) {
		puts("usage: underspan explain (--clickhouse=URL | --store=DIR) [--json | --html]\n"
		     "                         TRACE_ID|REQUEST_ID\n\n"
		     "Where the time of a request went, and why: from the request ledger\n"
		     "(ebpf_request), with its spans or without any. Server spans of the trace\n"
		     "that have no row there: the view request_time_parts.\n"
		     "Exit code 1 when there is nothing of that id, or nothing was measured.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = html_output_check(as_html, as_json, "underspan explain --html ID > FILE.html",
					&why);
	if (!err && n_words > 1)
		err = why_fail(&why, EINVAL, "one id at a time: '%.64s' is a second one", words[1]);
	if (!err && !n_words)
		err = why_fail(&why, EINVAL,
			       "which request? underspan explain "
			       "TRACE_ID, or REQUEST_ID of ebpf_request");
	if (!err)
		err = parse_id(words[0], &id, &why);
	if (!err)
		err = explain_on_target(&(struct ledger_wanted){ id.trace, id.request }, &why);
	config_free(tables);
	return command_end(err, &why);
}
