// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan top`: hidden time of the host's Python processes, live or of a window of a database:
 * by process, thread and line, on a screen, or once as text or JSON.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "commands/commands.h"
#include "commands/json_output.h"
#include "commands/measure_command.h"
#include "commands/top/json.h"
#include "commands/top/screen.h"
#include "commands/top/stored.h"
#include "commands/top/sums.h"
#include "commands/top/view.h"
#include "commands/watched.h"
#include "commands/window.h"
#include "commands/window_text.h"

enum { ONCE_LINES = 10, COLUMNS = 80, COLUMNS_MAX = 400 };

static bool once, as_json, each_thread;
static int sort;
static struct top_sums sums, before;			 /* before: of --against-since */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `sums` */
static struct measured measured;
static json_t *stored; /* the window's report; NULL: live */
static struct why no_screen;

static const struct option options[] = {
	{ .key = "once",
	  .flag_only = true,
	  .type = OPTION_BOOL,
	  .target = &once,
	  .help = "measure for -d, print once and end; for scripts" },
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "with --once or a database: a JSON object" },
	{ .key = "sort",
	  .flag_only = true,
	  .type = OPTION_CHOICE,
	  .target = &sort,
	  .arg = "COLUMN",
	  .help = "what is listed first",
	  .choices = (const char *const *)top_sort_names },
	{ .key = "threads",
	  .flag_only = true,
	  .type = OPTION_BOOL,
	  .target = &each_thread,
	  .help = "each thread apart; otherwise the threads of a pool are one line" },
};
const struct option_table top_options = { options, ARRAY_SIZE(options) };

/* See top_part_is_known(). A process whose GIL waits are measured can be sampled; so can others. */
static unsigned int measured_of(uint32_t host_pid)
{
	const struct top_entry *e;
	unsigned int of_process;

	if (stored)
		return top_stored_measured(host_pid);
	e = top_entry_of_process(&sums, host_pid);
	of_process = e && e->has_samples ? TOP_OF_ON_CPU : 0;
	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (w->host_pid == host_pid && w->live)
			of_process |= TOP_OF_GIL_WAIT | TOP_OF_ON_CPU;
	}
	return of_process;
}

static struct top_view view(void)
{
	struct top_view of = { .sort = sort, .whole = once || stored, .measured = measured_of };

	if (window_against.since_ns) {
		of.before = &before;
		of.measured_before = top_stored_measured_before;
		of.processes = top_stored_processes;
		of.processes_before = top_stored_processes_before;
	}
	return of;
}

/* ---- rows, on the collector's thread ---- */

static void on_row(const struct table *table, const void *row)
{
	pthread_mutex_lock(&lock);
	top_sums_row(&sums, table, row);
	pthread_mutex_unlock(&lock);
}

static const char *subject(void)
{
	return measure_pids()->n ? watched_text() : "all Pythons of this host";
}

static unsigned int lacking_now(void)
{
	unsigned int lacking = 0;

	for (size_t i = 0; i < TOP_SOURCES; i++)
		lacking |= measure_runs(top_trackers[i].name) ? 0 : top_trackers[i].source;
	return lacking;
}

static void each_second(void)
{
	static bool begun;

	pthread_mutex_lock(&lock);
	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (w->live || (w->named && w->there))
			top_entry_of_process(&sums, w->host_pid);
	}
	top_sums_publish(&sums, lacking_now(), clock_monotonic_ns());
	pthread_mutex_unlock(&lock);
	if (!begun && !once) {
		const struct top_screen screen = { &sums, &lock, view(), subject(),
						   measure_end_early };

		if (top_screen_start(&screen, &no_screen))
			measure_end_early();
	}
	begun = true;
	if (!once)
		top_screen_draw();
}

/* ---- --once ---- */

static size_t width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20)
		return COLUMNS;
	return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
}

static void print_level(enum top_level level)
{
	struct top_view of = view();
	struct top_entry **list;
	char line[TOP_LINE_BYTES];
	size_t n;

	of.level = level;
	n = top_view_list(&sums, &of, &list);
	top_view_head(&of, width(), line);
	printf("\n%s\n", line);
	for (size_t i = 0; i < n && i < ONCE_LINES; i++) {
		top_view_line(&sums, &of, list[i], width(), line);
		puts(line);
		top_view_before(&of, list[i], width(), line);
		if (*line)
			puts(line);
	}
	if (n > ONCE_LINES)
		printf("%*s and %zu more\n", 7, "", n - ONCE_LINES);
	free(list);
}

static void print_lacks(const struct top_sums *of_window, const char *when)
{
	const struct top_view of = view();
	char lacks[TOP_LINE_BYTES];

	top_view_lacks(of_window, &of, lacks);
	if (*lacks)
		printf("%s%s\n", when, lacks);
}

/* The times of the window, and of the one before. */
static void print_windows(void)
{
	char window[800];

	measure_describe(stored, &measured, window, sizeof(window));
	text_print_line(stdout, "%s; CPU times by samples", window);
	if (!window_against.since_ns)
		return;
	window_time_text(json_object_get(stored, "against"), window, sizeof(window));
	text_print_line(stdout, "before, %s; what changed most is first", window);
}

static void print_once(void)
{
	if (stored) {
		print_windows();
		window_print_notes(stored);
	} else {
		text_print_line(stdout, "%s, %.1f s", subject(), (double)sums.all_ns / 1e9);
	}
	print_lacks(&sums, "");
	if (window_against.since_ns)
		print_lacks(&before, "before: ");
	for (int level = 0; level < TOP_LEVELS; level++)
		print_level((enum top_level)level);
}

static int print(struct why *why)
{
	const struct top_view of = view();
	json_t *root;

	if (as_json) {
		root = top_json(&sums, &of);
		json_object_update(root, stored);
		json_output_write(root);
		json_decref(root);
	} else {
		print_once();
	}
	if (sums.left_out + before.left_out)
		log_warn("%llu %s had no place in memory",
			 (unsigned long long)(sums.left_out + before.left_out),
			 counted(sums.left_out + before.left_out, "entry", "entries"));
	return measure_flush(why);
}

static int report(struct why *why)
{
	top_sums_finish(&sums, measured.end_ns - measured.begin_ns);
	if (!once)
		return no_screen.text[0] ? why_fail(why, ENOTSUP, "%s", no_screen.text) : 0;
	return print(why);
}

/* ---- the command ---- */

static int check(struct why *why)
{
	if (window_answers())
		return 0;
	if (as_json && !once)
		return why_fail(why, EINVAL, "json: needs --once, or a database");
	return once ? 0 : top_screen_check(why);
}

static int measure(struct why *why)
{
	char *trackers[TOP_SOURCES];
	const struct measure what = { .trackers = { trackers, ARRAY_SIZE(trackers) },
				      .probes = "gil_wait",
				      .needs = "off_cpu",
				      .default_duration_ns = once ? 5 * NSEC_PER_SEC : 0,
				      .progress = once,
				      .row = on_row,
				      .each_second = each_second };
	int err = measure_check_any(&measured, why);

	for (size_t i = 0; i < TOP_SOURCES; i++)
		trackers[i] = (char *)top_trackers[i].name;
	sums.pools = !each_thread;
	if (!err)
		err = measure_run(&what, &measured, why);
	top_screen_stop();
	if (!err)
		err = report(why);
	top_sums_free(&sums);
	return err;
}

/* A window of a database. */
static int ask(struct why *why)
{
	int err;

	sums.pools = before.pools = !each_thread;
	sums.cpu_by_samples = before.cpu_by_samples = true;
	err = top_stored(measure_pids(), &sums, &before, &stored, why);
	if (!err)
		err = print(why);
	json_decref(stored);
	top_stored_free();
	top_sums_free(&sums);
	top_sums_free(&before);
	return err;
}

static void print_usage(void)
{
	puts("usage: underspan top [-p PID]... [--sort=COLUMN]\n"
	     "       underspan top --once [-d S] [--json] [-p PID]...\n"
	     "       underspan top (--clickhouse=URL | --store=DIR) [--since=AGO]\n"
	     "                     [--until=AGO] [--service=NAME] [--host=NAME]\n"
	     "                     [--against-since=AGO] [--json]\n\n"
	     "Where the threads of the host's Python processes wait, each second: for the\n"
	     "GIL, locks, the network, a CPU; CPU time, of lines by samples; collections;\n"
	     "hidden time of requests, busy threads and requests not read yet; stalls of event\n"
	     "loops. By process, thread or Python line. ? shows the keys.\n"
	     "From a database: once, of a window of one host, all CPU times by samples;\n"
	     "sums of waits belong to the window in which their interval ended. Compared\n"
	     "with another window, the processes of a service, or else of a name, are one\n"
	     "line, with the line of the window before below it.\n");
}

int command_top(int argc, char **argv)
{
	/* sums instead of rows: this process receives little, independent of the load */
	static const struct measure_default defaults[] = { { "off_cpu.min_duration_us", "1h" },
							   { "off_cpu.profile_interval", "1" },
							   { "off_cpu.profile_stack_us", "1000" },
							   { "gil_wait.min_duration_us", "1h" },
							   { "gil_wait.profile_interval", "1" },
							   { "on_cpu.hertz", "49" },
							   { 0 } };
	static const struct measure_command command = { .options = &top_options,
							.compares = true,
							.defaults = defaults,
							.print_usage = print_usage,
							.check = check,
							.ask = ask,
							.measure = measure };

	return measure_command(&command, argc, argv);
}
