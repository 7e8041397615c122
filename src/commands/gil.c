// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan gil -p PID`: how long each thread of a process waited for the GIL, and who had it
 * meanwhile, running which line.
 */
#include <jansson.h>
#include <stdio.h>

#include "commands/commands.h"
#include "commands/gil_totals.h"
#include "commands/measure.h"
#include "log.h"
#include "text.h"

enum { LINES_SHOWN = 10, NAME_COLUMNS = 28 };

static bool as_json;
static struct gil_totals totals;
static struct measured measured;

static const struct option options[] = {
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "print one JSON object instead of tables" },
};

/* Said with every result: no number stands for it. */
static const char not_measured[] =
	"time in which a thread had the GIL and no other thread waited for it";

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

/* Only where there are several: the process has started others. */
static bool several_processes(void)
{
	for (const struct gil_thread *t = totals.threads; t; t = t->hh.next) {
		if (t->id.host_pid != measured.host_pid)
			return true;
	}
	return false;
}

static void print_pid(bool wanted, const struct gil_thread *thread)
{
	if (wanted && thread)
		printf("%8u ", thread->id.host_pid);
	else if (wanted)
		printf("%8s ", "pid");
}

/* A name may be any text; columns after it stay where they are. */
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
	printf("\nwho had the GIL while others waited\n");
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
		       "nobody, or not known", (double)totals.unheld_ns / 1e6,
		       100 * share_of(totals.unheld_ns, totals.rows_ns));
}

static void print_tables(void)
{
	bool pids = several_processes();

	printf("process %u (%s), %.1f s: %llu waits for the GIL, %.3f ms of all threads together\n",
	       measured.host_pid, measured.comm, measured_seconds(&measured),
	       (unsigned long long)totals.waits, (double)totals.wait_ns / 1e6);
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

static void print_json(void)
{
	json_t *threads = json_array(), *holders = json_array(), *root;

	gil_totals_sort_by_wait(&totals);
	for (const struct gil_thread *t = totals.threads; t && t->waits; t = t->hh.next)
		json_array_append_new(threads, json_of_waits(t));
	gil_totals_sort_by_held(&totals);
	for (const struct gil_thread *t = totals.threads; t && t->held_ns; t = t->hh.next)
		json_array_append_new(holders, json_of_holder(t));
	root = json_pack("{s:I, s:s, s:f, s:s, s:I, s:I, s:o, s:o, s:I, s:I, s:s}", "host_pid",
			 (json_int_t)measured.host_pid, "comm", measured.comm, "duration_s",
			 measured_seconds(&measured), "method", measured.method, "waits",
			 (json_int_t)totals.waits, "wait_ns", (json_int_t)totals.wait_ns, "threads",
			 threads, "holders", holders, "holder_unknown_ns",
			 (json_int_t)totals.unheld_ns, "lost", (json_int_t)measured.lost,
			 "not_measured", not_measured);
	if (root)
		json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	puts("");
	json_decref(root);
}

/* ---- the command ---- */

static int measure(struct why *why)
{
	static char *const trackers[] = { "gil_wait" };
	const struct measure what = { .trackers = { (char **)trackers, ARRAY_SIZE(trackers) },
				      .of_gil = true,
				      .default_duration_ns = 5 * NSEC_PER_SEC,
				      .progress = true,
				      .row = on_row };
	int err = measure_check(&measured, why);

	if (!err)
		err = measure_run(&what, &measured, why);
	if (err)
		return err;
	if (totals.failed)
		return why_fail(why, ENOMEM, "out of memory");
	if (as_json)
		print_json();
	else
		print_tables();
	if (measured.gone)
		log_warn("process %u ended after %.1f s", measured.host_pid,
			 measured_seconds(&measured));
	if (measured.lost)
		log_warn(
			"%llu waits have no row: holders, lines and percentiles are without them, and "
			"the sums without those whose end was not seen",
			(unsigned long long)measured.lost);
	return measure_flush(why);
}

static int set_defaults(const struct option_table *tables, struct why *why)
{
	int err = measure_govern_nothing(why);

	if (!err) /* each wait is a row: percentiles and holders are of all of them */
		err = config_set_default(tables, "gil_wait.min_duration_us", "0", why);
	if (!err)
		err = config_set_default(tables, "gil_wait.profile_interval", "1", why);
	return err;
}

static void print_help(const struct option_table *tables)
{
	puts("usage: underspan gil -p PID [-d S] [--json]\n\n"
	     "How long each thread of a Python process waited for the GIL, and who had it meanwhile.\n"
	     "Here gil_wait.min_duration_us is 0 and gil_wait.profile_interval 1, unless given.\n");
	config_print_help(tables);
}

int command_gil(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       measure_options,
					       measure_tracker_options("gil_wait"),
					       { 0 } };
	struct why why = { { 0 } };
	int err = set_defaults(tables, &why);

	if (!err)
		err = config_parse(tables, argc, argv, NULL, NULL, &why);
	if (err > 0) {
		print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = measure(&why);
	measure_end();
	config_free(tables);
	gil_totals_free(&totals);
	return command_end(err, &why);
}
