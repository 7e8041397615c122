// SPDX-License-Identifier: Apache-2.0
/* Requests from a database. See stored.h. */
#include "commands/requests/stored.h"

#include <string.h>

#include "base/util.h"
#include "commands/request_parts.h"
#include "commands/requests/slow_causes.h"
#include "commands/window.h"

/* Of a window without a row of the agent's: less is the edge between two reports. */
enum { PARTLY_S = 2 };

/* The window with the parameters of these queries. */
struct request_window {
	struct window window;
	const struct request_question *question;
	char top[16], by_request[32], by_endpoint[32];
	bool without; /* also endpoints with nothing of the part */
};

static int ask_top(struct request_window *w, const char *path, const char *by, const char *top,
		   json_t **ret_rows, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_path", w->question->path ?: "" },
						   { "param_top", top },
						   { "param_by", by },
						   { "param_without", w->without ? "1" : "0" },
						   { 0 } };

	return window_ask(&w->window, path, params, ret_rows, why);
}

static int ask(struct request_window *w, const char *path, const char *by, json_t **ret_rows,
	       struct why *why)
{
	return ask_top(w, path, by, w->top, ret_rows, why);
}

static void set_texts(struct request_window *w)
{
	int part = w->question->part;

	/* beside another window nothing is an answer, too */
	w->without = part < 0 || window_against.since_ns;
	snprintf(w->top, sizeof(w->top), "%llu", (unsigned long long)w->question->top);
	snprintf(w->by_request, sizeof(w->by_request), "%s%s",
		 part < 0 ? "server" : request_parts[part].name, part < 0 ? "_ms" : "_ns");
	snprintf(w->by_endpoint, sizeof(w->by_endpoint), "%s%s",
		 part < 0 ? "hidden" : request_parts[part].name, part < 0 ? "_ms" : "_ns");
}

/* ---- the report ---- */

/* Time measured on a host; 0: not known. */
static double seconds_of(const json_t *coverage, const char *host)
{
	const json_t *row;
	size_t i;

	json_array_foreach (coverage, i, row) {
		if (!strcmp(report_text(row, "host"), host))
			return report_number(row, "measured_s");
	}
	return 0;
}

/* "100 of 3600 s (host h1)" of each host whose agent ran for a part of the window. */
static void add_partly_measured(const struct request_window *w, json_t *report,
				const json_t *coverage)
{
	enum { HOSTS_SHOWN = 3 };
	double window_s = (double)(w->window.to_us - w->window.from_us) / 1e6, missed_s;
	char text[1000] = "";
	size_t i, n = 0, len = 0;
	const json_t *row;

	json_object_set_new(report, "window_s", json_real(window_s));
	json_array_foreach (coverage, i, row) {
		missed_s = window_s - report_number(row, "measured_s");
		if (missed_s < PARTLY_S || missed_s < window_s / 100 || n++ >= HOSTS_SHOWN)
			continue;
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%.0f of %.0f s (host %.200s)", n > 1 ? ", " : "",
					report_number(row, "measured_s"), window_s,
					report_text(row, "host"));
	}
	if (n > HOSTS_SHOWN)
		snprintf(text + len, sizeof(text) - len, ", and %zu more host%s in part",
			 n - HOSTS_SHOWN, plural(n - HOSTS_SHOWN));
	if (n)
		json_object_set_new(report, "partly_measured", json_string(text));
}

static int add_listeners(struct request_window *w, json_t *report, const json_t *coverage,
			 struct why *why)
{
	json_t *rows = NULL, *row;
	size_t i;
	int err;

	if (w->question->path) { /* threads serve further paths as well */
		if (json_array_size(coverage))
			report_add_note(report,
					"threads missing: not of a path alone, as the threads of a "
					"listener serve all paths; leave out --path");
		return 0;
	}
	err = ask(w, "requests/listeners.sql", "", &rows, why);
	json_array_foreach (rows, i, row)
		report_add_listener(report, json_incref(row),
				    seconds_of(coverage, report_text(row, "host")));
	json_decref(rows);
	return err;
}

static int add_totals(struct request_window *w, json_t *report, struct why *why)
{
	json_t *rows = NULL, *reasons;
	const json_t *row;
	int err = ask(w, "requests/totals.sql", "", &rows, why);

	row = json_array_get(rows, 0);
	json_object_set_new(report, "requests", json_real(report_number(row, "requests")));
	json_object_set_new(report, "rows",
			    json_integer((json_int_t)report_number(row, "row_count")));
	reasons = json_object_get(row, "reasons");
	for (size_t i = 0; i < json_array_size(json_array_get(reasons, 0)); i++)
		report_add_reason(report,
				  json_string_value(json_array_get(json_array_get(reasons, 0), i))
					  ?: "",
				  json_number_value(json_array_get(json_array_get(reasons, 1), i)));
	json_decref(rows);
	return err;
}

static int fill(struct request_window *w, json_t *report, struct why *why)
{
	json_t *coverage = NULL, *slowest = NULL, *endpoints = NULL;
	double measured_s;
	int err = window_coverage(&w->window, "request", "requests", report, &coverage, &measured_s,
				  why);

	add_partly_measured(w, report, coverage);
	if (!err)
		err = add_totals(w, report, why);
	if (!err)
		err = ask(w, "requests/slowest.sql", w->by_request, &slowest, why);
	if (!err)
		err = ask(w, "requests/endpoints.sql", w->by_endpoint, &endpoints, why);
	if (!err)
		err = add_listeners(w, report, coverage, why);
	json_object_set_new(
		report, "endpoints_total",
		json_integer((json_int_t)report_number(json_array_get(endpoints, 0), "endpoints")));
	json_object_set_new(report, "slowest", slowest ?: json_array());
	json_object_set_new(report, "endpoints", endpoints ?: json_array());
	if (!err && !report_number(report, "rows") && measured_s <= 0)
		err = window_not_measured(&w->window, report, "request", why);
	else if (!err && !report_number(report, "rows"))
		err = window_note_empty(&w->window, report, why);
	json_object_set_new(report, "coverage", coverage ?: json_array());
	if (!err && w->question->causes)
		slow_causes_add(w->window.client, report);
	return err;
}

/* ---- the window before ---- */

static bool same_endpoint(const json_t *a, const json_t *b)
{
	return !strcmp(report_text(a, "method"), report_text(b, "method")) &&
	       !strcmp(report_text(a, "endpoint"), report_text(b, "endpoint")) &&
	       report_number(a, "server_port") == report_number(b, "server_port");
}

/* Sets "before" of each endpoint that was asked in both windows. */
static void join_before(json_t *endpoints, const json_t *before)
{
	json_t *row, *earlier;
	size_t i, j;

	json_array_foreach (endpoints, i, row) {
		json_array_foreach (before, j, earlier) {
			if (same_endpoint(row, earlier))
				json_object_set(row, "before", earlier);
		}
	}
}

static int fill_before(struct request_window *w, json_t *report, json_t *against, struct why *why)
{
	json_t *coverage = NULL, *endpoints = NULL;
	double measured_s;
	int err = window_coverage(&w->window, "request", "requests", report, &coverage, &measured_s,
				  why);

	if (!err)
		err = ask_top(w, "requests/endpoints.sql", w->by_endpoint, "10000", &endpoints,
			      why);
	json_decref(coverage);
	if (!err && measured_s <= 0 && !json_array_size(endpoints))
		report_add_note(report, "before: nothing was measured in that time");
	json_object_set_new(against, "measured_s", json_real(measured_s));
	json_object_set_new(against, "endpoints", endpoints ?: json_array());
	return err;
}

static int read_window(void *context, json_t *report, json_t *times, struct why *why)
{
	json_t *against = json_object_get(report, "against");
	int err;

	if (times != report)
		return fill_before(context, report, times, why);
	err = fill(context, report, why);
	join_before(json_object_get(report, "endpoints"), json_object_get(against, "endpoints"));
	json_object_del(against, "endpoints");
	return err;
}

static int make(struct request_window *w, json_t **ret_report, struct why *why)
{
	json_t *report;
	int err;

	set_texts(w);
	report = window_report(&w->window, &w->question->pids);
	if (json_object_update_new(
		    report,
		    json_pack("{s:s, s:[], s:[]}", "by",
			      w->question->part < 0 ? "" : request_parts[w->question->part].name,
			      "listeners", "not_measured")))
		return why_fail(why, ENOMEM, "out of memory");
	err = window_read_both(&w->window, report, read_window, w, why);
	if (!err)
		*ret_report = report;
	else
		json_decref(report);
	return err;
}

int stored_report(const struct request_question *question, json_t **ret_report, struct why *why)
{
	struct request_window w = { .question = question };
	int err = window_open(&w.window, "ebpf_request", &question->pids, why);

	if (!err)
		err = make(&w, ret_report, why);
	window_close(&w.window);
	return err;
}
