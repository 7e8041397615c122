// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan requests`: the slow requests of a time and where their time went, from a database, or
 * live of some processes.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "commands/commands.h"
#include "commands/database.h"
#include "commands/html_output.h"
#include "commands/json_output.h"
#include "commands/measure_command.h"
#include "commands/requests/live.h"
#include "commands/requests/page.h"
#include "commands/request_parts.h"
#include "commands/requests/print.h"
#include "commands/report.h"
#include "commands/requests/stored.h"
#include "commands/window.h"

static struct request_question question = { .top = 10, .part = -1 };
static char *path, *by;
static bool slowest, as_json, as_html;

static const struct option options[] = {
	{ .key = "path",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &path,
	  .arg = "PREFIX",
	  .help = "only paths that begin so",
	  .otherwise = "all" },
	{ .key = "slowest",
	  .flag_only = true,
	  .type = OPTION_BOOL,
	  .target = &slowest,
	  .help = "order by total time, without waits for the client: the default" },
	{ .key = "by",
	  .flag_only = true,
	  .type = OPTION_STRING,
	  .target = &by,
	  .arg = "PART|endpoint",
	  .help = "requests and endpoints with most of a part; endpoint: endpoints with most "
		  "hidden time",
	  .otherwise = "total time" },
	{ .key = "top",
	  .flag_only = true,
	  .type = OPTION_UINT,
	  .target = &question.top,
	  .arg = "N",
	  .help = "lines of each table",
	  .min = 1,
	  .max = 10000 },
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "everything as one JSON object" },
	{ .key = "html",
	  .type = OPTION_BOOL,
	  .target = &as_html,
	  .help = HTML_OPTION_HELP,
	  .flag_only = true },
};
const struct option_table requests_options = { options, ARRAY_SIZE(options) };

/* Not for a given time; without -p also the database of the host's configuration. */
static bool is_stored(void)
{
	return !measure_is_timed() && (!measure_pids()->n || window_has_database());
}

/* On the command line: a database of the environment or of a file is there for other questions. */
static bool asks_database(void)
{
	static const char *const keys[] = { "clickhouse", "store" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *where = config_where(keys[i]);

		if (where && !strcmp(where, CONFIG_WHERE_FLAG))
			return true;
	}
	return false;
}

static int check_live(struct why *why)
{
	if (asks_database())
		return why_fail(why, EINVAL,
				"duration: -d measures without a database: leave out -d, or the "
				"database");
	if (window_is_chosen())
		return why_fail(why, EINVAL,
				"since, until, service and host choose from a database: leave them "
				"out with -p, or give --clickhouse=URL or --store=DIR");
	return 0;
}

static int check_stored(struct why *why)
{
	if (clickhouse_config.clickhouse || clickhouse_config.store)
		return 0;
	return why_fail(why, EINVAL,
			"no database given: use --clickhouse=URL for a server, --store=DIR for "
			"the embedded store, or -p PID to measure now");
}

static int check(struct why *why)
{
	int err = html_output_check(as_html, as_json, "underspan requests --html > FILE.html", why);

	if (!err)
		err = is_stored() ? check_stored(why) : check_live(why);
	if (err)
		return err;
	if (slowest && by)
		return why_fail(why, EINVAL,
				"slowest and by exclude each other: give only one order");
	question.endpoints = by && !strcmp(by, "endpoint");
	if (by && !question.endpoints) {
		question.part = request_part_find(by, why);
		if (question.part < 0)
			return question.part;
	}
	question.path = path;
	question.pids = *measure_pids();
	question.causes = as_html;
	return 0;
}

static int print(json_t *report, struct why *why)
{
	if (as_html) {
		requests_page_limit(report);
		return html_output_write("requests", path ? path : "Requests", report, why);
	}
	if (as_json) {
		json_output_write(report);
	} else {
		requests_print(report, &question);
	}
	return measure_flush(why);
}

static void print_usage(void)
{
	puts("usage: underspan requests (--clickhouse=URL | --store=DIR) [OPTIONS] [-p PID]\n"
	     "       underspan requests -p PID... [-d S] [OPTIONS]\n\n"
	     "The slow requests of a time, and where their time went, from ebpf_request; the\n"
	     "endpoints by hidden time; and for each listener whether threads were missing.\n"
	     "Without a database, or with -d: live, for some seconds, of the processes of -p\n"
	     "and their descendants.\n"
	     "With --against-since each endpoint is compared with the same in another window.\n"
	     "A request's id or trace id is what `underspan explain` takes.\n");
	fputs("The parts of a request are:", stdout);
	for (int i = 0; i < REQUEST_PARTS; i++)
		printf("%s%s%s", i ? "," : "", i % 8 ? " " : "\n  ", request_parts[i].name);
	puts("\n");
}

static int ask(struct why *why)
{
	json_t *report = NULL;
	int err = stored_report(&question, &report, why);

	if (!err)
		err = print(report, why);
	json_decref(report);
	return err;
}

static int measure(struct why *why)
{
	json_t *report = NULL;
	int err = live_report(&question, &report, why);

	if (!err)
		err = print(report, why);
	json_decref(report);
	return err;
}

int command_requests(int argc, char **argv)
{
	/* the parts need no rows of single waits */
	static const struct measure_default defaults[] = { MEASURE_GOVERN_NOTHING,
							   { "gil_wait.min_duration_us", "1s" },
							   { 0 } };
	static const struct measure_command command = { .options = &requests_options,
							.tracker = "request",
							.compares = true,
							.defaults = defaults,
							.print_usage = print_usage,
							.is_stored = is_stored,
							.check = check,
							.ask = ask,
							.measure = measure };

	return measure_command(&command, argc, argv);
}
