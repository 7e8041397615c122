// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan gil -p PID`: GIL waits per thread of a process and its descendants, with holders and
 * their lines.
 */
#include <jansson.h>
#include <stdio.h>

#include "commands/commands.h"
#include "commands/gil/totals.h"
#include "commands/html_output.h"
#include "commands/measure.h"
#include "commands/watched.h"
#include "base/log.h"
#include "base/text.h"

enum { LINES_SHOWN = 10, NAME_COLUMNS = 28 };

static bool as_json, as_html;
static struct gil_totals totals;
static struct measured measured;

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

static uint64_t wall_ns(void)
{
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

struct process_sum {
	uint64_t waits, wait_ns;
};

static struct process_sum sum_of(uint32_t host_pid)
{
	struct process_sum sum = { 0 };

	for (const struct gil_thread *t = totals.threads; t; t = t->hh.next) {
		if (t->id.host_pid == host_pid) {
			sum.waits += t->waits;
			sum.wait_ns += t->wait_ns;
		}
	}
	return sum;
}

static void print_processes(void)
{
	printf("\n%8s  %-16s %8s %11s\n", "pid", "process", "waits", "waited, ms");
	for (const struct watched *w = watched_first(); w; w = w->next) {
		struct process_sum sum = sum_of(w->host_pid);

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

static void print_waits(bool pids)
{
	gil_totals_sort_by_wait(&totals);
	print_pid(pids, NULL);
	printf("%8s  %-*s %8s %11s %7s %11s %11s\n", "tid", NAME_COLUMNS, "thread", "waits",
	       "waited, ms", "of time", "longest, ms", "p99, ms");
	for (const struct gil_thread *t = totals.threads; t && t->waits; t = t->hh.next) {
		print_pid(pids, t);
		printf("%8u  ", t->id.tid);
		print_name(t->name, NAME_COLUMNS);
		printf(" %8llu %11.3f %6.1f%% %11.3f %11.3f\n", (unsigned long long)t->waits,
		       (double)t->wait_ns / 1e6, 100 * share_of(t->wait_ns, wall_ns()),
		       (double)t->max_ns / 1e6, (double)gil_percentile_ns(t, 99) / 1e6);
	}
}

static void print_holders(bool pids)
{
	gil_totals_sort_by_held(&totals);
	printf("\n"
	       "holders of the GIL during waits\n");
	print_pid(pids, NULL);
	printf("%8s  %-*s %11s %7s  %s\n", "tid", NAME_COLUMNS, "thread", "of that, ms", "share",
	       "mostly at");
	for (const struct gil_thread *t = totals.threads; t && t->held_ns; t = t->hh.next) {
		print_pid(pids, t);
		printf("%8u  ", t->id.tid);
		print_name(t->name, NAME_COLUMNS);
		printf(" %11.3f %6.1f%%  ", (double)t->held_ns / 1e6,
		       100 * share_of(t->held_ns, totals.rows_ns));
		if (t->lines)
			printf("%s (%.0f%% of its)\n", t->lines->text,
			       100 * share_of(t->lines->wait_ns, t->held_ns));
		else
			printf("not known: waits of less than a millisecond\n");
	}
	if (totals.unheld_ns * 1000 > totals.rows_ns)
		printf("%*s  %-*s %11.3f %6.1f%%\n", pids ? 17 : 8, "-", NAME_COLUMNS,
		       "no holder, or not known", (double)totals.unheld_ns / 1e6,
		       100 * share_of(totals.unheld_ns, totals.rows_ns));
}

static void print_tables(void)
{
	bool pids = several_processes();

	printf("%s, %.1f s: %llu waits for the GIL, %.3f ms of all threads together\n",
	       watched_text(), measured_seconds(&measured), (unsigned long long)totals.waits,
	       (double)totals.wait_ns / 1e6);
	if (pids)
		print_processes();
	if (totals.waits) {
		printf("\n");
		print_waits(pids);
	}
	if (totals.rows)
		print_holders(pids);
	printf("\nNot measured: %s.\n", not_measured);
}

/* ---- JSON ---- */

static json_t *json_of_waits(const struct gil_thread *t)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "pid",
			 (json_int_t)t->pid, "tid", (json_int_t)t->id.tid, "host_pid",
			 (json_int_t)t->id.host_pid, "host_tid", (json_int_t)t->host_tid,
			 "thread_name", t->name, "waits", (json_int_t)t->waits, "wait_ns",
			 (json_int_t)t->wait_ns, "share_of_time", share_of(t->wait_ns, wall_ns()),
			 "max_ns", (json_int_t)t->max_ns, "p99_ns",
			 (json_int_t)gil_percentile_ns(t, 99), "runq_ns", (json_int_t)t->runq_ns,
			 "forced_ns", (json_int_t)t->forced_ns);
}

static json_t *json_of_holder(const struct gil_thread *t)
{
	json_t *lines = json_array();
	size_t n = 0;

	for (const struct gil_line *l = t->lines; l && n < LINES_SHOWN; l = l->hh.next, n++)
		json_array_append_new(lines, json_pack("{s:s, s:I, s:I}", "line", l->text, "waits",
						       (json_int_t)l->waits, "wait_ns",
						       (json_int_t)l->wait_ns));
	return json_pack("{s:I, s:I, s:s, s:I, s:I, s:f, s:o}", "tid", (json_int_t)t->id.tid,
			 "host_pid", (json_int_t)t->id.host_pid, "thread_name", t->name, "waits",
			 (json_int_t)t->held_waits, "wait_ns", (json_int_t)t->held_ns, "share",
			 share_of(t->held_ns, totals.rows_ns), "lines", lines);
}

/* Processes without measurement or without Python have no numbers. */
static json_t *json_of_process(const struct watched *w)
{
	json_t *process = json_pack("{s:I, s:s, s:b, s:b}", "host_pid", (json_int_t)w->host_pid,
				    "comm", w->comm, "named", w->named, "measured", w->live);
	struct process_sum sum = sum_of(w->host_pid);

	if (w->live) {
		json_object_set_new(process, "method", json_string(w->method));
		json_object_set_new(process, "waits", json_integer((json_int_t)sum.waits));
		json_object_set_new(process, "wait_ns", json_integer((json_int_t)sum.wait_ns));
	} else {
		json_object_set_new(process, "reason",
				    w->reason.text[0] ? json_string(w->reason.text) : json_null());
	}
	return process;
}

static json_t *json_of_processes(void)
{
	json_t *processes = json_array();

	for (const struct watched *w = watched_first(); w; w = w->next)
		json_array_append_new(processes, json_of_process(w));
	return processes;
}

static void add_sums(json_t *root)
{
	json_t *threads = json_array(), *holders = json_array();

	gil_totals_sort_by_wait(&totals);
	for (const struct gil_thread *t = totals.threads; t && t->waits; t = t->hh.next)
		json_array_append_new(threads, json_of_waits(t));
	gil_totals_sort_by_held(&totals);
	for (const struct gil_thread *t = totals.threads; t && t->held_ns; t = t->hh.next)
		json_array_append_new(holders, json_of_holder(t));
	json_object_update_new(
		root, json_pack("{s:f, s:s, s:I, s:I, s:o, s:o, s:I, s:I, s:s}", "duration_s",
				measured_seconds(&measured), "method", measured.method, "waits",
				(json_int_t)totals.waits, "wait_ns", (json_int_t)totals.wait_ns,
				"threads", threads, "holders", holders, "holder_unknown_ns",
				(json_int_t)totals.unheld_ns, "lost", (json_int_t)measured.lost,
				"not_measured", not_measured));
}

/* Without sums if nothing was measured. */
static json_t *json_of_all(void)
{
	json_t *root = json_pack("{s:I, s:s}", "host_pid", (json_int_t)measured.host_pid, "comm",
				 measured.comm);

	if (watched_any_live())
		add_sums(root);
	json_object_set_new(root, "processes", json_of_processes());
	return root;
}

static void print_json(void)
{
	json_t *root = json_of_all();

	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	puts("");
	json_decref(root);
}

static int print_html(struct why *why)
{
	json_t *root = json_of_all();
	char title[1280];
	int err;

	snprintf(title, sizeof(title), "GIL waits of %s", watched_text());
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
		log_warn("%llu waits have no row: holders, lines and percentiles are without "
			 "them, and the sums lack the waits without a seen end",
			 (unsigned long long)measured.lost);
	if (!err)
		err = measure_flush(why);
	return err ? err : watched_say_unmeasured(why);
}

static int set_defaults(const struct option_table *tables, struct why *why)
{
	int err = measure_govern_nothing(why);

	if (!err) /* every wait is a row: percentiles and holders include all waits */
		err = config_set_default(tables, "gil_wait.min_duration_us", "0", why);
	if (!err)
		err = config_set_default(tables, "gil_wait.profile_interval", "1", why);
	return err;
}

static void print_help(const struct option_table *tables)
{
	puts("usage: underspan gil -p PID... [-d S] [--json | --html]\n\n"
	     "How long each thread of a Python process waited for the GIL, and which thread\n"
	     "held the GIL.\n");
	config_print_help(tables);
}

int command_gil(int argc, char **argv)
{
	const struct option_table tables[] = {
		gil_options, measure_options, measure_tracker_options("gil_wait"), { 0 }
	};
	struct why why = { { 0 } };
	int err = set_defaults(tables, &why);

	if (!err)
		err = measure_parse(tables, argc, argv, &why);
	if (err > 0) {
		print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = html_output_check(as_html, as_json, &why);
	if (!err)
		err = measure(&why);
	measure_end();
	config_free(tables);
	gil_totals_free(&totals);
	return command_end(err, &why);
}
