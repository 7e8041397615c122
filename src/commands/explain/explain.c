// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan explain TRACE_ID`: the spans of a trace with the hidden time around and inside them.
 * All figures of the sums come from the view request_time_parts. Queries are in sql/explain/, the
 * output in print.c.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "clickhouse/exceptions.h"
#include "commands/database.h"
#include "commands/commands.h"
#include "commands/explain/print.h"
#include "base/config.h"
#include "base/log.h"

/* Error of a query that needs a missing table or view. */
enum { NO_SUCH_TABLE = -ENODATA };
enum { SPANS_SHOWN = 1000 }; /* as in sql/explain/spans.sql */

static bool as_json;

static const struct option options[] = {
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "everything as one JSON object: spans, parts, intervals, what was not measured" },
};

static const char *sql_file(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* impossible: a test checks every file */
}

/* The query of a view: text after the CREATE line, without the closing semicolon. */
static int view_question(const char *path, const char **ret_text)
{
	static const char as[] = " AS\nWITH\n";
	const char *text = strstr(sql_file(path), as), *end;

	text += strlen(" AS\n");
	end = strrchr(text, ';');
	*ret_text = text;
	return (int)(end - text);
}

/*
 * The view request_time_parts with request_time inlined, as a single query: ClickHouse analyses a
 * nested view several times, which takes longer than the answer. Enables the conditions that the
 * views contain as comments: only rows of {pids} and spans of {trace_id} are relevant. Heap; NULL:
 * out of memory.
 */
static char *parts_question(void)
{
	static const char call[] = "request_time(from = {from:DateTime64(6, 'UTC')}, "
				   "to = {to:DateTime64(6, 'UTC')})";
	static const char only_explain[] = "--explain: ";
	const char *inner, *outer, *at;
	int inner_len = view_question("views/request_time.sql", &inner);
	int outer_len = view_question("views/request_time_parts.sql", &outer);
	char *sql = NULL;

	at = strstr(outer, call);
	if (asprintf(&sql,
		     "SELECT * FROM (%.*s(%.*s\n)%.*s\n) WHERE trace_id = {trace_id:String} "
		     "ORDER BY start_us, span_id",
		     (int)(at - outer), outer, inner_len, inner,
		     (int)(outer + outer_len - at - strlen(call)), at + strlen(call)) < 0)
		return NULL;
	for (char *c = sql; (c = strstr(c, only_explain));)
		memset(c, ' ', strlen(only_explain));
	return sql;
}

/* Rows of a query: an array of objects, freed by the caller. */
static int ask_text(struct clickhouse_client *client, const char *sql,
		    const struct clickhouse_param *params, json_t **ret_rows, struct why *why)
{
	struct clickhouse_reply reply;
	int err = clickhouse_query_rows(client, sql, "JSON", params, ret_rows, &reply, why);

	if (err && (reply.exception_code == EXCEPTION_UNKNOWN_TABLE ||
		    reply.exception_code == EXCEPTION_UNKNOWN_FUNCTION))
		return NO_SUCH_TABLE;
	return err;
}

static int ask(struct clickhouse_client *client, const char *path,
	       const struct clickhouse_param *params, json_t **ret_rows, struct why *why)
{
	return ask_text(client, sql_file(path), params, ret_rows, why);
}

/* ---- the trace's spans ---- */

/* All of time, if no table has the time of the trace. */
static int find_spans(struct clickhouse_client *client, const char *trace_id, json_t **ret_spans,
		      struct why *why)
{
	struct clickhouse_param params[] = { { "param_trace_id", trace_id },
					     { "param_first", "1970-01-02 00:00:00" },
					     { "param_last", "2100-01-01 00:00:00" },
					     { 0 } };
	json_t *when = NULL, *row;
	int err = ask(client, "explain/when.sql", params, &when, why);

	if (!err && (row = json_array_get(when, 0))) {
		params[1].value = explain_text(row, "first");
		params[2].value = explain_text(row, "last");
	}
	if (!err || err == NO_SUCH_TABLE)
		err = ask(client, "explain/spans.sql", params, ret_spans, why);
	if (err == NO_SUCH_TABLE)
		err = why_fail(why, ENOENT,
			       "no view otel_span here: once the OpenTelemetry collector has made "
			       "otel_traces, run 'underspan schema --apply' (with --traces="
			       "DATABASE.TABLE if the spans are elsewhere)");
	json_decref(when);
	if (!err && !json_array_size(*ret_spans))
		err = why_fail(why, ENOENT, "no span of trace %.64s in otel_traces", trace_id);
	return err;
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

/* Pids of the trace's server spans as a ClickHouse array. Heap; NULL: out of memory. */
static char *server_pids(const json_t *spans)
{
	const json_t *span;
	char *text = NULL;
	size_t i, size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("[0", out);
	json_array_foreach (spans, i, span) {
		if (!strcmp(explain_text(span, "kind"), "server"))
			fprintf(out, ",%lld", (long long)explain_number(span, "pid"));
	}
	fputc(']', out);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
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

/* Attaches the row of request_time_parts to each server span as "request". */
static int find_parts(struct clickhouse_client *client, const char *trace_id, json_t *spans,
		      struct why *why)
{
	int64_t from_us = 0, to_us = 0;
	char from[32], to[32];
	AUTO_FREE char *question = parts_question(), *pids = server_pids(spans);
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
	if (!question || !pids)
		return why_fail(why, ENOMEM, "out of memory");
	snprintf(from, sizeof(from), "%lld.%06lld", (long long)(from_us / 1000000),
		 (long long)(from_us % 1000000));
	snprintf(to, sizeof(to), "%lld.%06lld", (long long)(to_us / 1000000),
		 (long long)(to_us % 1000000));
	err = ask_text(client, question, params, &rows, why);
	if (err == NO_SUCH_TABLE)
		return why_fail(why, ENOENT,
				"the tables or views here are missing or of another version: run "
				"'underspan schema --apply'");
	json_array_foreach (rows, i, row) {
		json_t *span = span_by_id(spans, explain_text(row, "span_id"));

		if (span)
			json_object_set(span, "request", row);
	}
	json_decref(rows);
	return err;
}

/* ---- events inside spans ---- */

/* Attaches the result of a query about the span's process or thread and a time range to the span as
 * `key`. */
static int attach(struct clickhouse_client *client, json_t *span, const char *key,
		  const char *question, int64_t from_us, int64_t to_us, struct why *why)
{
	const json_t *request = json_object_get(span, "request");
	char pid[16], tid[16], from[24], to[24];
	const struct clickhouse_param params[] = { { "param_pid", pid },
						   { "param_tid", tid },
						   { "param_host", explain_text(request, "host") },
						   { "param_container_id",
						     explain_text(request, "container_id") },
						   { "param_from_us", from },
						   { "param_to_us", to },
						   { 0 } };
	json_t *rows = NULL;
	int err;

	snprintf(pid, sizeof(pid), "%lld", (long long)explain_number(request, "pid"));
	snprintf(tid, sizeof(tid), "%lld", (long long)explain_number(request, "tid"));
	snprintf(from, sizeof(from), "%lld", (long long)from_us);
	snprintf(to, sizeof(to), "%lld", (long long)to_us);
	err = ask(client, question, params, &rows, why);
	if (!err)
		json_object_set(span, key, rows);
	json_decref(rows);
	return err == NO_SUCH_TABLE ? 0 : err;
}

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
		err = attach(client, span, "handoff", "explain/handoff.sql", pickup, pickup, why);
	if (!err)
		err = attach(client, span, "gc", "explain/gc.sql", from, to, why);
	if (!err)
		err = attach(client, span, "throttle", "explain/throttle.sql", from, to, why);
	if (!err)
		err = attach(client, span, "waits", "explain/waits.sql", start, end, why);
	return err;
}

/* ---- the command ---- */

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

static int print_json(const char *trace_id, json_t *spans, bool cut, struct why *why)
{
	json_t *root = json_pack("{s:s, s:b, s:O}", "trace_id", trace_id, "cut", cut, "spans",
				 spans);
	int err = root && !json_dumpf(root, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII) ? 0 : -EIO;

	json_decref(root);
	putchar('\n');
	return err ? why_fail(why, EIO, "cannot write the answer") : 0;
}

static int explain(struct clickhouse_client *client, const char *trace_id, struct why *why)
{
	json_t *spans = NULL, *span;
	size_t i;
	int err = find_spans(client, trace_id, &spans, why);
	bool cut = !err && cut_spans(trace_id, spans);

	if (!err)
		err = find_parts(client, trace_id, spans, why);
	json_array_foreach (spans, i, span) {
		if (!err && json_object_get(span, "request"))
			err = look_under(client, span, why);
	}
	if (!err && as_json)
		err = print_json(trace_id, spans, cut, why);
	else if (!err)
		explain_print(trace_id, spans);
	if (!err && !explain_measured(spans))
		err = why_fail(why, ENODATA,
			       "nothing could be measured for any server span of trace %s",
			       trace_id);
	json_decref(spans);
	return err;
}

/* W3C trace context: 16 bytes as hex; accepts dashes of a UUID and upper case. */
static int parse_trace_id(const char *word, char ret[33], struct why *why)
{
	size_t n = 0;

	for (const char *c = word; *c; c++) {
		if (*c == '-')
			continue;
		if (!strchr("0123456789abcdefABCDEF", *c) || n == 32)
			return why_fail(why, EINVAL,
					"'%.64s' is no trace id: use its 32 hex digits", word);
		ret[n++] = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
	}
	ret[n] = 0;
	return n == 32 ? 0
		       : why_fail(why, EINVAL, "'%.64s' is no trace id: use its 32 hex digits",
				  word);
}

static int explain_on_target(const char *trace_id, struct why *why)
{
	struct clickhouse_client *client = NULL;
	struct clickhouse_target target;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_client_new(&target.endpoints[0], &client, why);
	if (!err)
		err = explain(client, trace_id, why);
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
	char *word, trace_id[33];
	size_t n_words = 1;
	int err = config_parse(tables, argc, argv, &word, &n_words, &why);

	if (err > 0) {
		puts("usage: underspan explain (--clickhouse=URL | --store=DIR) [--json] "
		     "TRACE_ID\n\n"
		     "Where one request's time went, span by span: the view request_time_parts.\n"
		     "Exit code 1 when nothing could be measured for any of its server spans.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && n_words != 1)
		err = why_fail(&why, EINVAL, "which trace? underspan explain TRACE_ID");
	if (!err)
		err = parse_trace_id(word, trace_id, &why);
	if (!err)
		err = explain_on_target(trace_id, &why);
	config_free(tables);
	return command_end(err, &why);
}
