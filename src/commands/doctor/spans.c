// SPDX-License-Identifier: Apache-2.0
/* Server spans as findings, a query's own words: sql/doctor/spans.sql. See spans.h. */
#include "commands/doctor/spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "clickhouse/exceptions.h"
#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "clickhouse/traces.h"
#include "commands/database.h"
#include "commands/doctor/report.h"

static bool wanted;
static uint64_t since_ns;
static char *wanted_service; /* NULL: all */

static const struct option options[] = {
	{ .key = "spans",
	  .type = OPTION_BOOL,
	  .target = &wanted,
	  .help = "instead of this host: do the server spans of otel_traces join with rows?",
	  .flag_only = true },
	{ .key = "since",
	  .flag_only = true,
	  .type = OPTION_SECONDS,
	  .target = &since_ns,
	  .arg = "S",
	  .help = "for --spans: spans of so long ago until now",
	  .otherwise = "1h",
	  .min = 1,
	  .max = 30 * 86400 },
	{ .key = "service",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &wanted_service,
	  .arg = "NAME",
	  .help = "for --spans: only of this service, as the spans name it",
	  .otherwise = "all" },
};
const struct option_table doctor_spans_options = { options, ARRAY_SIZE(options) };

bool doctor_spans_wanted(void)
{
	return wanted;
}

int doctor_spans_check_options(struct why *why)
{
	if ((since_ns || wanted_service) && !wanted)
		return why_fail(why, EINVAL, "%s: of spans, so --spans as well",
				since_ns ? "since" : "service");
	return 0;
}

static const char *query(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* impossible: checked by a test */
}

static void tell_missing(const struct clickhouse_reply *reply, const char *table, int err,
			 struct why *why)
{
	const char *dot = strchr(table, '.');

	if (*table && strstr(reply->message, dot ? dot + 1 : table))
		why_fail(why, -err,
			 "the view otel_span reads %.200s, which is missing here or is not the "
			 "table of the OpenTelemetry collector's exporter: `underspan schema "
			 "--apply --traces=DATABASE.TABLE` names another one",
			 table);
	else
		why_fail(why, -err, "%s",
			 strstr(reply->message, "otel_span")
				 ? "no view otel_span here, which knows the spans: once the "
				   "OpenTelemetry collector has made otel_traces, run `underspan "
				   "schema --apply`"
				 : "tables of underspan are missing here, or of an older version: "
				   "run `underspan schema --apply`");
}

/* `others`: of spans of any kind, asked only if no server's span is there; NULL otherwise. */
static int ask(json_t **ret_rows, json_t **ret_others, char table[256], struct why *why)
{
	char seconds[32];
	const struct clickhouse_param params[] = { { "param_seconds", seconds }, { 0 } };
	struct clickhouse_client *client = NULL;
	struct clickhouse_target target;
	struct clickhouse_reply reply = { 0 };
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	*table = '\0';

	if (err)
		return err;
	snprintf(seconds, sizeof(seconds), "%" PRIu64, (uint64_t)(since_ns / NSEC_PER_SEC));
	err = clickhouse_client_new(&target.endpoints[0], &client, why);
	if (!err)
		err = traces_of_view(client, clickhouse_config.traces, table, why);
	if (!err)
		err = clickhouse_query_rows(client, query("doctor/spans.sql"), "JSON", params,
					    ret_rows, &reply, why);
	if (!err && !json_array_size(*ret_rows))
		err = clickhouse_query_rows(client, query("doctor/no_server_spans.sql"), "JSON",
					    params, ret_others, &reply, why);
	if (err && (reply.exception_code == EXCEPTION_UNKNOWN_TABLE ||
		    reply.exception_code == EXCEPTION_UNKNOWN_IDENTIFIER))
		tell_missing(&reply, table, err, why);
	clickhouse_client_free(client);
	clickhouse_release(&target);
	return err;
}

/* Numbers of 64 bits come as texts. */
static uint64_t number(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	return json_is_string(value) ? strtoull(json_string_value(value), NULL, 10)
				     : (uint64_t)json_integer_value(value);
}

static const char *text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key)) ?: "";
}

static uint64_t spans_of(const json_t *rows, const char *service, bool joined_only)
{
	uint64_t n = 0;
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		if (!strcmp(text(row, "service"), service) &&
		    (!joined_only || !*text(row, "reason")))
			n += number(row, "spans");
	}
	return n;
}

static void report_service(const json_t *rows, const char *service)
{
	uint64_t all = spans_of(rows, service, false), joined = spans_of(rows, service, true);
	const char *name = *service ? service : "(no service.name)";
	char line[1200];
	const json_t *row;
	size_t i;

	snprintf(line, sizeof(line), "%" PRIu64 " of %" PRIu64 " server span%s %s", joined, all,
		 plural(all), counted(joined, "joins", "join"));
	if (joined)
		doctor_say(true, name, line);
	json_array_foreach (rows, i, row) {
		if (strcmp(text(row, "service"), service) || !*text(row, "reason"))
			continue;
		snprintf(line, sizeof(line),
			 "%" PRIu64 " of %" PRIu64
			 " server span%s %s not join (as in trace %s): %s",
			 number(row, "spans"), all, plural(all),
			 counted(number(row, "spans"), "does", "do"), text(row, "trace_id"),
			 text(row, "reason"));
		doctor_say(false, name, line);
	}
}

/* Why there is no server's span, from the spans of other kinds. */
static void report_none(const json_t *others, const char *table)
{
	const json_t *row = json_array_get(others, 0);
	char line[700];

	if (row && number(row, "spans"))
		snprintf(line, sizeof(line),
			 "%" PRIu64 " in %.200s, of %" PRIu64
			 " %s (as in trace %s), none of them a server's (SpanKind Server), "
			 "and only these are requests: instrument the server or its framework "
			 "(opentelemetry-bootstrap -a install, then opentelemetry-instrument)",
			 number(row, "spans"), table, number(row, "services"),
			 counted(number(row, "services"), "service", "services"),
			 text(row, "trace_id"));
	else
		snprintf(line, sizeof(line),
			 "none in %.200s: does the collector's exporter write there? If it writes "
			 "to another table, `underspan schema --apply --traces=DATABASE.TABLE`",
			 table);
	doctor_say(false, "spans", line);
}

/* Which there are instead. */
static void report_no_service(const json_t *rows)
{
	char line[700] = "", names[400] = "";
	const char *last = NULL;
	const json_t *row;
	size_t i, len = 0;

	json_array_foreach (rows, i, row) { /* sorted by service */
		const char *service = text(row, "service");

		if (!*service || (last && !strcmp(last, service)) || len + 70 > sizeof(names))
			continue;
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%.64s",
					len ? ", " : "", service);
		last = service;
	}
	snprintf(line, sizeof(line), "no server span of that service in that time; there are %s",
		 len ? names : "none with a service.name");
	doctor_say(false, wanted_service, line);
}

static void say_window(void)
{
	double s = (double)since_ns / NSEC_PER_SEC;

	if (s < 120)
		doctor_section("spans of the last %.0f s", s);
	else
		doctor_section("spans of the last %.4g minutes", s / 60);
}

void doctor_spans_check(void)
{
	char table[256];
	struct why why = { { 0 } };
	json_t *rows = NULL, *others = NULL;
	const char *service = NULL;
	const json_t *row;
	bool found = false;
	size_t i;

	since_ns = since_ns ?: 3600 * NSEC_PER_SEC;
	say_window();
	if (ask(&rows, &others, table, &why))
		doctor_say(false, "spans", why.text);
	else if (!json_array_size(rows))
		report_none(others, table);
	json_array_foreach (rows, i, row) { /* sorted by service */
		if (service && !strcmp(text(row, "service"), service))
			continue;
		service = text(row, "service");
		found |= !wanted_service || !strcmp(wanted_service, service);
		if (!wanted_service || !strcmp(wanted_service, service))
			report_service(rows, service);
	}
	if (json_array_size(rows) && !found)
		report_no_service(rows);
	json_decref(rows);
	json_decref(others);
}
