// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan gil`: GIL waits per thread with holders and their lines, of a process and its
 * descendants, live, or of a window of a database.
 */
#include <jansson.h>
#include <stdio.h>

#include "commands/commands.h"
#include "commands/gil/json.h"
#include "commands/gil/stored.h"
#include "commands/gil/totals.h"
#include "commands/html_output.h"
#include "commands/measure_command.h"
#include "commands/report.h"
#include "commands/watched.h"
#include "commands/window.h"
#include "commands/window_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

enum { NAME_COLUMNS = 28, STORED_SHOWN = 40 };

static bool as_json, as_html;
static struct gil_totals totals;
static struct measured measured;
static json_t *stored; /* the window's report; NULL: live */

static const struct option options[] = {
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "print a JSON object instead of tables" },
	{ .key = "html",
	  .type = OPTION_BOOL,
	  .target = &as_html,
	  .help = HTML_OPTION_HELP,
	  .flag_only = true },
};
const struct option_table gil_options = { options, ARRAY_SIZE(options) };

/* Printed with every result: limits of the measurement. */
static const char not_measured[] = "time with the GIL held and no waiting thread";

static void on_row(const struct table *table, const void *row)
{
	gil_totals_row(&totals, table, row);
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Of a window: time measured, of all hosts. */
static uint64_t wall_ns(void)
{
	if (stored)
		return (uint64_t)(report_number(stored, "measured_s") * 1e9);
	return measured.end_ns - measured.begin_ns;
}

/* ---- tables ---- */

/* Whether there are several processes: given ones or descendants. */
static bool several_processes(void)
{
	const struct watched *first = watched_first();

	for (const struct gil_thread *t = totals.threads; t; t = t->hh.next) {
		if (t->id.host_pid != measured.host_pid)
			return true;
	}
	return first && first->next;
}

static void print_processes(void)
{
	printf("\n%8s  %-16s %8s %11s\n", "pid", "process", "waits", "waited, ms");
	for (const struct watched *w = watched_first(); w; w = w->next) {
		struct gil_process_sum sum = gil_totals_of_process(&totals, w->host_pid);

		printf("%8u  %-16s ", w->host_pid, w->comm);
		if (w->live)
			printf("%8llu %11.3f\n", (unsigned long long)sum.waits,
			       (double)sum.wait_ns / 1e6);
		else
			printf("%8s %11s\n", "-",
			       watched_is_unmeasured(w) ? "not measured" : "no Python");
	}
}

static void print_pid(bool wanted, const struct gil_thread *thread)
{
	if (wanted && thread)
		printf("%8u ", thread->id.host_pid);
	else if (wanted)
		printf("%8s ", "pid");
}

/* Prints a name of any width padded to `columns`. */
static void print_name(const char *name, size_t columns)
{
	size_t width, bytes = text_prefix(name, columns, &width);

	printf("%.*s%*s", (int)bytes, name, (int)(columns - width), "");
}

/* Threads of a window may be several of a name. */
static void print_thread(const struct gil_thread *t)
{
	if (stored && t->threads > 1)
		printf("%6llu x  ", (unsigned long long)t->threads);
	else
		printf("%8u  ", stored ? t->host_tid : t->id.tid);
	print_name(t->name, NAME_COLUMNS);
}

/* Percentiles need rows of all waits. */
static void print_percentile(const struct gil_thread *t)
{
	if (stored)
		printf(" %11s", "-");
	else
		printf(" %11.3f", (double)gil_percentile_ns(t, 99) / 1e6);
	if (window_against.since_ns)
		printf(" %11.3f", (double)t->before_ns / 1e6);
	putchar('\n');
}

static void print_rest(size_t n, size_t shown)
{
	if (n > shown)
		printf("%8s  and %zu more thread%s\n", "", n - shown, plural(n - shown));
}

static void print_waits(bool pids)
{
	size_t n = 0, shown = stored ? STORED_SHOWN : SIZE_MAX;

	gil_totals_sort_by_wait(&totals);
	print_pid(pids, NULL);
	printf("%8s  %-*s %8s %11s %7s %11s %11s%s\n", "tid", NAME_COLUMNS, "thread", "waits",
	       "waited, ms", "of time", "longest, ms", "p99, ms",
	       window_against.since_ns ? "  before, ms" : "");
	for (const struct gil_thread *t = totals.threads; t; t = t->hh.next) {
		if ((!t->waits && !t->before_ns) || n++ >= shown)
			continue;
		print_pid(pids, t);
		print_thread(t);
		printf(" %8llu %11.3f %6.1f%% %11.3f", (unsigned long long)t->waits,
		       (double)t->wait_ns / 1e6, 100 * share_of(t->wait_ns, wall_ns()),
		       (double)t->max_ns / 1e6);
		print_percentile(t);
	}
	print_rest(n, shown);
}

static void print_holders(bool pids)
{
	size_t n = 0, shown = stored ? STORED_SHOWN : SIZE_MAX;

	gil_totals_sort_by_held(&totals);
	printf("\n"
	       "holders of the GIL during waits%s\n",
	       stored ? " that have rows" : "");
	print_pid(pids, NULL);
	printf("%8s  %-*s %11s %7s  %s\n", "tid", NAME_COLUMNS, "thread", "of that, ms", "share",
	       "mostly at");
	for (const struct gil_thread *t = totals.threads; t && t->held_ns; t = t->hh.next) {
		if (n++ >= shown)
			continue;
		print_pid(pids, t);
		print_thread(t);
		printf(" %11.3f %6.1f%%  ", (double)t->held_ns / 1e6,
		       100 * share_of(t->held_ns, totals.rows_ns));
		if (t->lines)
			printf("%s (%.0f%% of its)\n", t->lines->text,
			       100 * share_of(t->lines->wait_ns, t->held_ns));
		else
			printf("not known: waits of less than a millisecond\n");
	}
	print_rest(n, shown);
	if (totals.unheld_ns * 1000 > totals.rows_ns)
		printf("%*s  %-*s %11.3f %6.1f%%\n", pids ? 17 : 8, "-", NAME_COLUMNS,
		       "no holder, or not known", (double)totals.unheld_ns / 1e6,
		       100 * share_of(totals.unheld_ns, totals.rows_ns));
}

static void print_tables(void)
{
	bool pids = !stored && several_processes();
	char subject[1280];

	measure_describe(stored, &measured, subject, sizeof(subject));
	text_print_line(stdout, "%s: %llu wait%s for the GIL, %.3f ms of all threads together",
			subject, (unsigned long long)totals.waits, plural(totals.waits),
			(double)totals.wait_ns / 1e6);
	if (window_against.since_ns) {
		window_time_text(json_object_get(stored, "against"), subject, sizeof(subject));
		text_print_line(stdout, "before, %s: %.3f ms", subject,
				(double)totals.before_ns / 1e6);
	}
	if (pids)
		print_processes();
	if (totals.waits || totals.before_ns) {
		printf("\n");
		print_waits(pids);
	}
	if (totals.rows)
		print_holders(pids);
	if (stored)
		window_print_notes(stored);
	printf("\nNot measured: %s.\n", not_measured);
}

/* ---- JSON and HTML ---- */

static struct gil_result result(void)
{
	return (struct gil_result){ &totals, &measured, stored, wall_ns(), not_measured };
}

static void print_json(void)
{
	const struct gil_result r = result();
	json_t *root = gil_json(&r);

	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	puts("");
	json_decref(root);
}

static int print_html(struct why *why)
{
	const struct gil_result r = result();
	json_t *root = gil_json(&r);
	char subject[1200], title[1280];
	int err;

	measure_describe(stored, &measured, subject, sizeof(subject));
	snprintf(title, sizeof(title), "GIL waits of %s", subject);
	err = html_output_write("gil", title, root, why);
	json_decref(root);
	return err;
}

/* ---- the command ---- */

static int measure(struct why *why)
{
	static char *const trackers[] = { "gil_wait" };
	const struct measure what = { .trackers = { (char **)trackers, ARRAY_SIZE(trackers) },
				      .probes = "gil_wait",
				      .needs_probes = true,
				      .default_duration_ns = 5 * NSEC_PER_SEC,
				      .progress = true,
				      .row = on_row };
	int err = measure_check(&measured, why);

	if (err == -ESRCH && as_json)
		print_json();
	if (!err)
		err = measure_run(&what, &measured, why);
	if (err)
		return err;
	if (totals.failed)
		return why_fail(why, ENOMEM, "out of memory");
	if (as_json)
		print_json();
	else if (as_html)
		err = print_html(why);
	else if (watched_any_live())
		print_tables();
	if (measured.gone && watched_any_live())
		log_warn("%s ended after %.1f s", watched_short_text(),
			 measured_seconds(&measured));
	if (measured.lost)
		log_warn("%llu wait%s no row: holders, lines and percentiles are without %s, "
			 "and the sums lack the waits without a seen end",
			 (unsigned long long)measured.lost,
			 counted(measured.lost, " has", "s have"),
			 counted(measured.lost, "it", "them"));
	if (!err)
		err = measure_flush(why);
	return err ? err : watched_say_unmeasured(why);
}

/* ---- a window of a database ---- */

static int ask(struct why *why)
{
	int err = gil_stored(measure_pids(), &totals, &stored, why);

	if (!err && as_json)
		print_json();
	else if (!err && as_html)
		err = print_html(why);
	else if (!err)
		print_tables();
	json_decref(stored);
	return err ? err : measure_flush(why);
}

static int check(struct why *why)
{
	return html_output_check(as_html, as_json, "underspan gil -p PID --html > FILE.html", why);
}

static void print_usage(void)
{
	puts("usage: underspan gil -p PID... [-d S] [--json | --html]\n"
	     "       underspan gil (--clickhouse=URL | --store=DIR) [--since=AGO]\n"
	     "                     [--until=AGO] [--service=NAME] [--against-since=AGO]\n"
	     "                     [--json | --html]\n\n"
	     "How long each thread of a Python process waited for the GIL, and which thread\n"
	     "held the GIL.\n"
	     "From a database: of a window of time, of all threads of a name together.\n");
}

int command_gil(int argc, char **argv)
{
	/* every wait is a row: percentiles and holders include all waits */
	static const struct measure_default defaults[] = { MEASURE_GOVERN_NOTHING,
							   { "gil_wait.min_duration_us", "0" },
							   { "gil_wait.profile_interval", "1" },
							   { 0 } };
	static const struct measure_command command = { .options = &gil_options,
							.tracker = "gil_wait",
							.compares = true,
							.defaults = defaults,
							.print_usage = print_usage,
							.check = check,
							.ask = ask,
							.measure = measure };
	int code = measure_command(&command, argc, argv);

	gil_totals_free(&totals);
	return code;
}
