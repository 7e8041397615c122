// SPDX-License-Identifier: Apache-2.0
/* A window of a database. See window.h. */
#include "commands/window.h"

#include <ctype.h>
#include <string.h>

#include "base/config.h"
#include "base/util.h"
#include "clickhouse/exceptions.h"
#include "clickhouse/rows.h"
#include "clickhouse/sql_files.h"
#include "commands/measure.h"
#include "commands/report.h"

struct window_choice window_choice, window_against;

enum { MAX_PARAMS = 24, DEFAULT_SINCE_S = 600 };
static const uint64_t LONGEST_S = 366 * 86400ULL;

static const struct option options[] = {
	{ .key = "since",
	  .flag_only = true,
	  .type = OPTION_SECONDS,
	  .target = &window_choice.since_ns,
	  .arg = "AGO",
	  .help = "of a database: what ended since so long ago, as in 90s, 2h",
	  .otherwise = "10m",
	  .min = 1,
	  .max = LONGEST_S },
	{ .key = "until",
	  .flag_only = true,
	  .type = OPTION_SECONDS,
	  .target = &window_choice.until_ns,
	  .arg = "AGO",
	  .help = "and before so long ago",
	  .otherwise = "now",
	  .max = LONGEST_S },
	{ .key = "service",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &window_choice.service,
	  .arg = "NAME",
	  .help = "only of this service: as OTEL_SERVICE_NAME, a container, a systemd unit or the spans name it",
	  .otherwise = "all" },
	{ .key = "host",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &window_choice.host,
	  .arg = "NAME",
	  .help = "only of this host",
	  .otherwise = "all" },
	{ .key = "namespace",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &window_choice.namespace,
	  .arg = "NAME",
	  .help = "only of this namespace of Kubernetes",
	  .otherwise = "all" },
	{ .key = "pod",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &window_choice.pod,
	  .arg = "NAME",
	  .help = "only of this pod",
	  .otherwise = "all" },
	{ .key = "container",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &window_choice.container,
	  .arg = "NAME",
	  .help = "only of this container of a pod, or of the container whose id begins so (12 characters or more)",
	  .otherwise = "all" },
};
const struct option_table window_options = { options, ARRAY_SIZE(options) };

static const struct option against_options[] = {
	{ .key = "against-since",
	  .flag_only = true,
	  .type = OPTION_SECONDS,
	  .target = &window_against.since_ns,
	  .arg = "AGO",
	  .help = "compare with a window of the database that began so long ago",
	  .otherwise = "no comparison",
	  .min = 1,
	  .max = LONGEST_S },
	{ .key = "against-until",
	  .flag_only = true,
	  .type = OPTION_SECONDS,
	  .target = &window_against.until_ns,
	  .arg = "AGO",
	  .help = "and ended so long ago",
	  .otherwise = "as long a window",
	  .max = LONGEST_S },
};
const struct option_table window_against_options = { against_options, ARRAY_SIZE(against_options) };

/* ---- options ---- */

static bool place_is_chosen(const struct window_choice *choice)
{
	return choice->namespace || choice->pod || choice->container;
}

bool window_is_chosen(void)
{
	return window_choice.since_ns || window_choice.until_ns || window_choice.host ||
	       window_choice.service || place_is_chosen(&window_choice) ||
	       window_against.since_ns || window_against.until_ns;
}

bool window_has_database(void)
{
	return clickhouse_config.store ||
	       (clickhouse_config.clickhouse && !config_from_default_file("clickhouse"));
}

bool window_answers(void)
{
	return window_is_chosen() || (window_has_database() && !measure_is_timed());
}

int window_check_not_timed(struct why *why)
{
	return measure_is_timed()
		       ? why_fail(
				 why, EINVAL,
				 "duration: -d measures now: leave out -d, or since, until, "
				 "service, host, pod and against-since, which choose from a database")
		       : 0;
}

int window_complete(struct why *why)
{
	struct window_choice *a = &window_against;

	if (!window_choice.since_ns)
		window_choice.since_ns = DEFAULT_SINCE_S * NSEC_PER_SEC;
	if (window_choice.until_ns >= window_choice.since_ns)
		return why_fail(
			why, EINVAL,
			"until: has to be less long ago than since: --since=1h --until=30m");
	if (a->until_ns && a->until_ns >= a->since_ns)
		return why_fail(why, EINVAL,
				"against-until: has to be less long ago than against-since: "
				"--against-since=25h --against-until=24h");
	if (a->since_ns && !a->until_ns) {
		uint64_t length_ns = window_choice.since_ns - window_choice.until_ns;

		if (a->since_ns < length_ns)
			return why_fail(why, EINVAL,
					"against-since: that window would not have ended yet: give "
					"--against-until as well");
		a->until_ns = a->since_ns - length_ns;
	}
	return 0;
}

/* ---- queries ---- */

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

/* Heap. */
static char *sql_of(const char *path, const struct window *w)
{
	char *sql = strdup(sql_file(path));

	if (sql && w->service)
		uncomment(sql, "--service: ");
	if (sql && w->service && !w->no_spans)
		uncomment(sql, "--spans: ");
	if (sql && (w->namespace || w->pod || w->container))
		uncomment(sql, "--place: ");
	return sql;
}

static bool lacks_spans(const struct clickhouse_reply *reply)
{
	return reply->exception_code == EXCEPTION_UNKNOWN_TABLE &&
	       strstr(reply->message, "otel_span");
}

/* The missing table, from "Unknown table expression identifier 'ebpf_agent' in scope ...". */
static void name_table(const struct window *w, const struct clickhouse_reply *reply, char *name,
		       size_t size)
{
	const char *found = reply->exception_code == EXCEPTION_UNKNOWN_TABLE
				    ? strstr(reply->message, "ebpf_")
				    : NULL;
	size_t len = found ? strspn(found, "abcdefghijklmnopqrstuvwxyz_") : 0;

	/* with its prefix */
	while (found && found > reply->message &&
	       (isalnum((unsigned char)found[-1]) || found[-1] == '_')) {
		found--;
		len++;
	}
	snprintf(name, size, "%.*s", found ? (int)len : 100, found ? found : w->table);
}

static int explain_error(const struct window *w, const struct clickhouse_reply *reply, int err,
			 struct why *why)
{
	int code = reply->exception_code;
	char table[101];

	if (code != EXCEPTION_UNKNOWN_TABLE && code != EXCEPTION_UNKNOWN_IDENTIFIER)
		return err;
	name_table(w, reply, table, sizeof(table));
	return why_fail(why, ENOENT,
			"the table %s is missing here, or of an older version: run "
			"'underspan schema --apply'",
			table);
}

int window_ask(struct window *w, const char *path, const struct clickhouse_param *more,
	       json_t **ret_rows, struct why *why)
{
	struct clickhouse_param params[MAX_PARAMS] = { { "param_from", w->from },
						       { "param_to", w->to },
						       { "param_host", w->host ?: "" },
						       { "param_service", w->service ?: "" },
						       { "param_namespace", w->namespace ?: "" },
						       { "param_pod", w->pod ?: "" },
						       { "param_container", w->container ?: "" },
						       { "param_pids", w->pids } };
	AUTO_FREE char *sql = sql_of(path, w);
	struct clickhouse_reply reply;
	size_t n = 8;
	int err;

	if (!sql)
		return why_fail(why, ENOMEM, "out of memory");
	for (size_t i = 0; more && more[i].name && n < MAX_PARAMS - 1; i++)
		params[n++] = more[i];
	err = clickhouse_query_rows(w->client, sql, "JSON", params, ret_rows, &reply, why);
	if (err && !w->no_spans && lacks_spans(&reply)) {
		w->no_spans = true;
		return window_ask(w, path, more, ret_rows, why);
	}
	return err ? explain_error(w, &reply, err, why) : 0;
}

/* ---- parameters ---- */

/* Uses the database's clock, not this host's. */
static int ask_time(struct window *w, struct why *why)
{
	static const char sql[] = "SELECT toUnixTimestamp64Micro(now64(6, 'UTC')) AS now_us";
	struct clickhouse_reply reply;
	json_t *rows = NULL;
	int err = clickhouse_query_rows(w->client, sql, "JSON", NULL, &rows, &reply, why);

	if (!err)
		w->now_us = (int64_t)report_number(json_array_get(rows, 0), "now_us");
	json_decref(rows);
	return err;
}

static void print_us(char *text, size_t size, int64_t us)
{
	snprintf(text, size, "%lld.%06lld", (long long)(us / 1000000), (long long)(us % 1000000));
}

static void set_time(struct window *w, uint64_t since_ns, uint64_t until_ns)
{
	w->from_us = w->now_us - (int64_t)(since_ns / NSEC_PER_USEC);
	w->to_us = w->now_us - (int64_t)(until_ns / NSEC_PER_USEC);
	print_us(w->from, sizeof(w->from), w->from_us);
	print_us(w->to, sizeof(w->to), w->to_us);
}

static int set_pids(struct window *w, const struct pid_list *pids, struct why *why)
{
	size_t size;
	FILE *out = open_memstream(&w->pids, &size);

	if (!out)
		return why_fail(why, ENOMEM, "out of memory");
	fputc('[', out);
	for (size_t i = 0; i < pids->n; i++)
		fprintf(out, "%s%u", i ? "," : "", pids->items[i]);
	fputc(']', out);
	return fclose(out) ? why_fail(why, ENOMEM, "out of memory") : 0;
}

int window_open(struct window *w, const char *table, const struct pid_list *pids, struct why *why)
{
	int err;

	*w = (struct window){ .host = window_choice.host,
			      .service = window_choice.service,
			      .namespace = window_choice.namespace,
			      .pod = window_choice.pod,
			      .container = window_choice.container,
			      .table = table };
	err = clickhouse_resolve(&clickhouse_config, &w->target, why);
	if (err)
		return err;
	err = clickhouse_client_new(&w->target.endpoints[0], &w->client, why);
	if (!err)
		err = set_pids(w, pids, why);
	if (!err)
		err = ask_time(w, why);
	set_time(w, window_choice.since_ns, window_choice.until_ns);
	return err;
}

static void add_times(const struct window *w, json_t *times)
{
	json_object_set_new(times, "from_us", json_integer((json_int_t)w->from_us));
	json_object_set_new(times, "to_us", json_integer((json_int_t)w->to_us));
}

json_t *window_report(const struct window *w, const struct pid_list *pids)
{
	json_t *list = json_array(), *report;

	for (size_t i = 0; i < pids->n; i++)
		json_array_append_new(list, json_integer((json_int_t)pids->items[i]));
	report = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:[]}", "host", w->host ?: "", "service",
			   w->service ?: "", "namespace", w->namespace ?: "", "pod", w->pod ?: "",
			   "container", w->container ?: "", "pids", list, "notes");
	add_times(w, report);
	return report;
}

int window_read_both(struct window *w, json_t *report, window_read *read, void *context,
		     struct why *why)
{
	json_t *against = window_against.since_ns ? json_object() : NULL;
	int err = 0;

	if (against) {
		set_time(w, window_against.since_ns, window_against.until_ns);
		add_times(w, against);
		json_object_set_new(report, "against", against);
		err = read(context, report, against, why);
		set_time(w, window_choice.since_ns, window_choice.until_ns);
	}
	return err ? err : read(context, report, report, why);
}

void window_note_lengths(json_t *report)
{
	const json_t *against = json_object_get(report, "against");
	double now = report_number(report, "measured_s");
	double before = against ? report_number(against, "measured_s") : 0;

	if (now > 0 && before > 0 && (now > 1.05 * before || before > 1.05 * now))
		report_add_note(report,
				"%.1f s are compared with %.1f s before: sums of a longer time are "
				"longer",
				now, before);
}

void window_close(struct window *w)
{
	free(w->pids);
	clickhouse_client_free(w->client);
	if (w->target.n_endpoints)
		clickhouse_release(&w->target);
	*w = (struct window){ 0 };
}

/* ---- coverage ---- */

static void add_losses(json_t *report, const json_t *coverage, const char *events)
{
	const json_t *row;
	char text[128];
	size_t i;

	json_array_foreach (coverage, i, row) {
		double lost = report_number(row, "lost"), gone = report_number(row, "undelivered");

		if (lost + gone > 0)
			report_add_note(report, "host %s: %s, %.0f row%s not delivered",
					report_text(row, "host"),
					report_lost(text, sizeof(text), lost, events), gone,
					counted(gone, " was", "s were"));
	}
}

/* What the governor took out is named: a report has several kinds of events. */
static void add_refusals(json_t *report, const json_t *refused, const char *events)
{
	const json_t *row;
	size_t i;

	json_array_foreach (refused, i, row) {
		const json_t *pids = json_object_get(row, "host_pids");
		size_t n = json_array_size(pids);

		if (!n && strstr(report_text(row, "reason"), "by the governor"))
			report_add_note(report, "host %s, %s: %s", report_text(row, "host"), events,
					report_text(row, "reason"));
		else if (!n)
			report_add_note(report, "host %s: %s", report_text(row, "host"),
					report_text(row, "reason"));
		else
			report_add_note(report, "host %s, pid %lld%s: %s", report_text(row, "host"),
					(long long)json_number_value(json_array_get(pids, 0)),
					n > 1 ? " and others" : "", report_text(row, "reason"));
	}
}

/* One of many events of any length: a single long wait may be missing, or count for several. */
static void add_sampled(json_t *report, const json_t *sampled)
{
	const json_t *row;
	size_t i;

	json_array_foreach (sampled, i, row)
		report_add_note(report,
				"host %s: at times only one event of %s in %.0f was kept, as the "
				"agent held its limit of CPU (governor.cpu_percent): its sums are "
				"estimates, and events are missing",
				report_text(row, "host"), report_text(row, "of"),
				report_number(row, "one_in"));
}

int window_coverage(struct window *w, const char *tracker, const char *events, json_t *report,
		    json_t **ret_coverage, double *ret_measured_s, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_tracker", tracker }, { 0 } };
	json_t *coverage = NULL, *refused = NULL, *sampled = NULL;
	const json_t *row;
	size_t i;
	int err = window_ask(w, "window/coverage.sql", params, &coverage, why);

	*ret_measured_s = 0;
	if (!err)
		err = window_ask(w, "window/refused.sql", params, &refused, why);
	if (!err)
		err = window_ask(w, "window/sampled.sql", params, &sampled, why);
	json_array_foreach (coverage, i, row)
		*ret_measured_s += report_number(row, "measured_s");
	add_losses(report, coverage, events);
	add_refusals(report, refused, events);
	add_sampled(report, sampled);
	json_decref(refused);
	json_decref(sampled);
	*ret_coverage = coverage;
	return err;
}
