// SPDX-License-Identifier: Apache-2.0
/* Requests from a database. See stored.h. */
#include "commands/requests/stored.h"

#include <string.h>

#include "clickhouse/exceptions.h"
#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "commands/database.h"
#include "commands/request_parts.h"

/* Parameters of all queries. */
struct window {
	struct clickhouse_client *client;
	const struct request_question *question;
	int64_t from_us, to_us;
	char from[32], to[32], top[16], by_request[32], by_endpoint[32];
	char *pids;    /* heap */
	bool no_spans; /* the database has no view otel_span */
};

static const char *sql_file(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* impossible: a test asks every query */
}

static void uncomment(char *sql, const char *mark)
{
	for (char *c = sql; (c = strstr(c, mark));)
		memset(c, ' ', strlen(mark));
}

/*
 * Heap; lines that begin with a mark apply to questions about a service, or about a service by its
 * spans.
 */
static char *sql_of(const char *path, bool service, bool spans)
{
	char *sql = strdup(sql_file(path));

	if (sql && service)
		uncomment(sql, "--service: ");
	if (sql && service && spans)
		uncomment(sql, "--spans: ");
	return sql;
}

static bool lacks_spans(const struct clickhouse_reply *reply)
{
	return reply->exception_code == EXCEPTION_UNKNOWN_TABLE &&
	       strstr(reply->message, "otel_span");
}

static int explain_error(const struct clickhouse_reply *reply, int err, struct why *why)
{
	int code = reply->exception_code;

	if (code != EXCEPTION_UNKNOWN_TABLE && code != EXCEPTION_UNKNOWN_IDENTIFIER)
		return err;
	return why_fail(why, ENOENT,
			"the table ebpf_request is missing here, or of an older version: run "
			"'underspan schema --apply'");
}

static int ask(struct window *w, const char *path, const char *by, json_t **ret_rows,
	       struct why *why)
{
	const struct request_question *q = w->question;
	const struct clickhouse_param params[] = { { "param_from", w->from },
						   { "param_to", w->to },
						   { "param_host", q->host ?: "" },
						   { "param_path", q->path ?: "" },
						   { "param_service", q->service ?: "" },
						   { "param_pids", w->pids },
						   { "param_top", w->top },
						   { "param_by", by },
						   { 0 } };
	AUTO_FREE char *sql = sql_of(path, q->service, !w->no_spans);
	struct clickhouse_reply reply;
	int err;

	if (!sql)
		return why_fail(why, ENOMEM, "out of memory");
	err = clickhouse_query_rows(w->client, sql, "JSON", params, ret_rows, &reply, why);
	if (err && !w->no_spans && lacks_spans(&reply)) {
		w->no_spans = true;
		return ask(w, path, by, ret_rows, why);
	}
	return err ? explain_error(&reply, err, why) : 0;
}

/* ---- parameters ---- */

/* Uses the database's clock, not this host's. */
static int ask_time(struct window *w, struct why *why)
{
	static const char sql[] = "SELECT toUnixTimestamp64Micro(now64(6, 'UTC')) AS now_us";
	struct clickhouse_reply reply;
	json_t *rows = NULL;
	int64_t now;
	int err = clickhouse_query_rows(w->client, sql, "JSON", NULL, &rows, &reply, why);

	if (err)
		return err;
	now = (int64_t)report_number(json_array_get(rows, 0), "now_us");
	w->from_us = now - (int64_t)(w->question->since_ns / NSEC_PER_USEC);
	w->to_us = now - (int64_t)(w->question->until_ns / NSEC_PER_USEC);
	json_decref(rows);
	return 0;
}

static void set_texts(struct window *w)
{
	int part = w->question->part;

	snprintf(w->from, sizeof(w->from), "%lld.%06lld", (long long)(w->from_us / 1000000),
		 (long long)(w->from_us % 1000000));
	snprintf(w->to, sizeof(w->to), "%lld.%06lld", (long long)(w->to_us / 1000000),
		 (long long)(w->to_us % 1000000));
	snprintf(w->top, sizeof(w->top), "%llu", (unsigned long long)w->question->top);
	snprintf(w->by_request, sizeof(w->by_request), "%s%s",
		 part < 0 ? "server" : request_parts[part].name, part < 0 ? "_ms" : "_ns");
	snprintf(w->by_endpoint, sizeof(w->by_endpoint), "%s%s",
		 part < 0 ? "hidden" : request_parts[part].name, part < 0 ? "_ms" : "_ns");
}

static int set_pids(struct window *w, struct why *why)
{
	size_t size;
	FILE *out = open_memstream(&w->pids, &size);

	if (!out)
		return why_fail(why, ENOMEM, "out of memory");
	fputc('[', out);
	for (size_t i = 0; i < w->question->pids.n; i++)
		fprintf(out, "%s%u", i ? "," : "", w->question->pids.items[i]);
	fputc(']', out);
	return fclose(out) ? why_fail(why, ENOMEM, "out of memory") : 0;
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

static int add_listeners(struct window *w, json_t *report, const json_t *coverage, struct why *why)
{
	json_t *rows = NULL, *row;
	size_t i;
	int err;

	if (w->question->path) { /* threads serve further paths as well */
		report_add_note(report, "threads missing: not of a path alone, as the threads of a "
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

static int add_totals(struct window *w, json_t *report, struct why *why)
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

static void add_losses(json_t *report, const json_t *coverage)
{
	const json_t *row;
	size_t i;

	json_array_foreach (coverage, i, row) {
		double lost = report_number(row, "lost"), gone = report_number(row, "undelivered");

		if (lost + gone > 0)
			report_add_note(
				report,
				"host %s: %.0f requests have no row for lack of space, %.0f "
				"rows were not delivered",
				report_text(row, "host"), lost, gone);
	}
}

static void add_refusals(json_t *report, const json_t *refused)
{
	const json_t *row;
	size_t i;

	json_array_foreach (refused, i, row) {
		const json_t *pids = json_object_get(row, "host_pids");
		size_t n = json_array_size(pids);

		if (!n)
			report_add_note(report, "host %s: %s", report_text(row, "host"),
					report_text(row, "reason"));
		else
			report_add_note(report, "host %s, pid %lld%s: %s", report_text(row, "host"),
					(long long)json_number_value(json_array_get(pids, 0)),
					n > 1 ? " and others" : "", report_text(row, "reason"));
	}
}

/* No request, and no agent that could have seen a request. */
static int nothing_measured(const json_t *report, struct why *why)
{
	const json_t *note = json_array_get(json_object_get(report, "notes"), 0);

	return why_fail(
		why, ENODATA,
		"nothing was measured: no agent with the tracker `request` reported in that "
		"time%s%s",
		note ? "; " : "; see `underspan doctor` on the host",
		note ? json_string_value(note) : "");
}

static int fill(struct window *w, json_t *report, struct why *why)
{
	json_t *coverage = NULL, *refused = NULL, *slowest = NULL, *endpoints = NULL;
	double measured_s = 0;
	const json_t *row;
	size_t i;
	int err = ask(w, "requests/coverage.sql", "", &coverage, why);

	if (!err)
		err = add_totals(w, report, why);
	if (!err)
		err = ask(w, "requests/refused.sql", "", &refused, why);
	if (!err)
		err = ask(w, "requests/slowest.sql", w->by_request, &slowest, why);
	if (!err)
		err = ask(w, "requests/endpoints.sql", w->by_endpoint, &endpoints, why);
	if (!err)
		err = add_listeners(w, report, coverage, why);
	json_array_foreach (coverage, i, row)
		measured_s += report_number(row, "measured_s");
	add_losses(report, coverage);
	add_refusals(report, refused);
	row = json_array_get(endpoints, 0);
	json_object_set_new(report, "endpoints_total",
			    json_integer((json_int_t)report_number(row, "endpoints")));
	json_object_set_new(report, "slowest", slowest ?: json_array());
	json_object_set_new(report, "endpoints", endpoints ?: json_array());
	if (!err && !report_number(report, "rows") && measured_s <= 0)
		err = nothing_measured(report, why);
	json_object_set_new(report, "coverage", coverage ?: json_array());
	json_decref(refused);
	return err;
}

static int ask_all(struct window *w, json_t **ret_report, struct why *why)
{
	int err = ask_time(w, why);
	json_t *report;

	if (!err)
		err = set_pids(w, why);
	if (err)
		return err;
	set_texts(w);
	report = json_pack("{s:I, s:I, s:s, s:[], s:[], s:[]}", "from_us", (json_int_t)w->from_us,
			   "to_us", (json_int_t)w->to_us, "by",
			   w->question->part < 0 ? "" : request_parts[w->question->part].name,
			   "listeners", "not_measured", "notes");
	if (!report)
		return why_fail(why, ENOMEM, "out of memory");
	err = fill(w, report, why);
	if (!err)
		*ret_report = report;
	else
		json_decref(report);
	return err;
}

int stored_report(const struct request_question *question, json_t **ret_report, struct why *why)
{
	struct window w = { .question = question };
	struct clickhouse_target target;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_client_new(&target.endpoints[0], &w.client, why);
	if (!err)
		err = ask_all(&w, ret_report, why);
	free(w.pids);
	clickhouse_client_free(w.client);
	clickhouse_release(&target);
	return err;
}
