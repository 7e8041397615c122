// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan timeline`: requests, hand-offs, the GIL's holder and the waits, collections, stalls
 * and samples of CPU time of each thread side by side, live or of a window of a database, as a page
 * or a file for Perfetto.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "commands/commands.h"
#include "commands/measure_command.h"
#include "commands/output_file.h"
#include "commands/report.h"
#include "commands/timeline/html.h"
#include "commands/timeline/limit.h"
#include "commands/timeline/live.h"
#include "commands/timeline/perfetto.h"
#include "commands/timeline/stored.h"
#include "commands/watched.h"
#include "commands/window.h"
#include "commands/window_text.h"

static char *output;
static struct output_file file;
static struct timeline timeline, before; /* before: of --against-since */
static struct measured measured;
static json_t *report;
static unsigned int seconds, seconds_of[TIMELINE_KINDS];

static const struct option options[] = {
	{ .key = "output",
	  .type = OPTION_STRING,
	  .target = &output,
	  .arg = "FILE",
	  .help = "FILE.html: a page; FILE.pftrace: a trace for ui.perfetto.dev; -: the trace to stdout",
	  .letter = 'o',
	  .flag_only = true },
};
const struct option_table timeline_options = { options, ARRAY_SIZE(options) };

/* ---- output ---- */

static bool to_stdout(void)
{
	return !strcmp(output, "-");
}

static bool ends_with(const char *ending)
{
	size_t n = strlen(output), len = strlen(ending);

	return n > len && !strcasecmp(output + n - len, ending);
}

static bool is_page(void)
{
	return ends_with(".html");
}

static int check(struct why *why)
{
	if (!output)
		return why_fail(why, EINVAL,
				"output: give -o FILE.html or FILE.pftrace, as in "
				"`underspan timeline -p PID -o FILE.html`");
	if (to_stdout() && isatty(STDOUT_FILENO))
		return why_fail(why, EINVAL, "output: stdout is a terminal: give -o FILE.pftrace");
	if (!to_stdout() && !is_page() && !ends_with(".pftrace") && !output_is_device(output))
		return why_fail(why, EINVAL,
				"output: %s: use FILE.html for a page, or FILE.pftrace "
				"for a trace in Perfetto's own form",
				output);
	return 0;
}

static int open_output(struct why *why)
{
	return to_stdout() ? 0 : output_file_open(&file, output, why);
}

static uint64_t time_of(const json_t *times, const char *name)
{
	return (uint64_t)report_number(times, name) * NSEC_PER_USEC;
}

static void add_before(struct timeline_window *window, char *title, size_t size)
{
	const json_t *against = json_object_get(report, "against");

	if (!against)
		return;
	window_time_text(against, title, size);
	window->before = &before;
	window->before_title = title;
	window->before_ns = time_of(against, "to_us") - time_of(against, "from_us");
	window->shift_ns = window->from_ns - time_of(against, "from_us");
	timeline_finish(&before);
	timeline.err = timeline.err ?: before.err;
}

static int print(struct why *why)
{
	char title[1280], title_before[160];
	struct timeline_window window = {
		.from_ns = time_of(report, "from_us"),
		.to_ns = time_of(report, "to_us"),
		.title = title,
		.notes = json_object_get(report, "notes"),
	};
	FILE *out = stdout;
	const json_t *note;
	size_t i;
	int err = 0;

	measure_describe(window_answers() ? report : NULL, &measured, title, sizeof(title));
	json_array_foreach (window.notes, i, note)
		log_warn("%s", json_string_value(note));
	timeline_finish(&timeline);
	add_before(&window, title_before, sizeof(title_before));
	if (!to_stdout())
		out = output_file_begin(&file, &err, why);
	if (err)
		return err;
	err = timeline.err
		      ?: (is_page() ? timeline_html_write : perfetto_write)(&timeline, &window,
									    out);
	if (out != stdout && fclose(out) && !err)
		err = -EIO;
	if (err == -ENOMEM)
		return why_fail(why, ENOMEM, "out of memory");
	return err ? why_fail(why, -err, "%s: cannot be written: %s", output, strerror(errno)) : 0;
}

/* ---- live ---- */

static void on_row(const struct table *table, const void *row)
{
	for (size_t i = 0; i < TIMELINE_KINDS; i++) {
		json_t *object;

		if (strncmp(table->name, "ebpf_", 5) != 0 ||
		    strcmp(table->name + 5, timeline_kinds[i].name) != 0)
			continue;
		object = timeline_live_row(table, row);
		if (!object)
			timeline.err = -ENOMEM;
		else
			timeline_add(&timeline, &timeline_kinds[i], object);
		timeline_limit(&timeline, (uint8_t)i, 2 * TIMELINE_ROWS_MAX);
		json_decref(object);
	}
}

static void each_second(void)
{
	seconds++;
	for (size_t i = 0; i < TIMELINE_KINDS; i++)
		seconds_of[i] += measure_runs(timeline_kinds[i].name);
}

static void add_notes(void)
{
	for (size_t i = 0; i < TIMELINE_KINDS; i++) {
		const char *events = timeline_kinds[i].events;

		if (!seconds_of[i])
			report_add_note(report, "not measured: %s", events);
		else if (seconds_of[i] + 1 < seconds)
			report_add_note(report, "not measured all the time: %s", events);
		timeline_limit(&timeline, (uint8_t)i, TIMELINE_ROWS_MAX);
	}
	timeline_add_notes(&timeline, "", report);
	measure_add_notes(report, &measured, "waits off the CPU");
}

static void make_live_report(void)
{
	report = json_pack("{s:I, s:I, s:[]}", "from_us",
			   (json_int_t)clock_wall_us(measured.begin_ns), "to_us",
			   (json_int_t)clock_wall_us(measured.end_ns), "notes");
	add_notes();
}

/* ---- the command ---- */

/* `err`: of what made the report. */
static int end(int err, struct why *why)
{
	if (!err)
		err = print(why);
	if (err)
		output_file_drop(&file);
	timeline_free(&timeline);
	timeline_free(&before);
	json_decref(report);
	return err ?: measure_flush(why);
}

static int measure(struct why *why)
{
	static char *const trackers[] = { "off_cpu",	"gil_wait", "gc_pause", "handoff",
					  "loop_stall", "request",  "on_cpu" };
	const struct measure what = { .trackers = { (char **)trackers, ARRAY_SIZE(trackers) },
				      .probes = "gil_wait",
				      .default_duration_ns = 5 * NSEC_PER_SEC,
				      .progress = true,
				      .row = on_row,
				      .each_second = each_second };
	int err = measure_check(&measured, why);

	if (!err)
		err = open_output(why);
	if (!err)
		err = measure_run(&what, &measured, why);
	if (!err) {
		watched_conclude();
		make_live_report();
	}
	return end(err, why);
}

static int ask(struct why *why)
{
	int err = open_output(why);

	if (!err)
		err = timeline_stored(measure_pids(), &timeline, &before, &report, why);
	return end(err, why);
}

static void print_usage(void)
{
	puts("usage: underspan timeline -p PID... [-d S] -o FILE.html\n"
	     "       underspan timeline (--clickhouse=URL | --store=DIR) [--since=AGO]\n"
	     "                          [--until=AGO] [--service=NAME] [--host=NAME]\n"
	     "                          [--against-since=AGO] -o FILE.html\n\n"
	     "Requests, hand-offs, the holder of the GIL, and the waits, collections and\n"
	     "stalls of each thread on one time axis, with the Python code that computed at\n"
	     "each sample of the CPUs: as a page (FILE.html), or as a file for Perfetto\n"
	     "(FILE.pftrace; ui.perfetto.dev reads it in the browser).\n"
	     "From a database: of one host, events that ended in the window. The processes of\n"
	     "another window (--against-since) are shown at the same place of the time axis,\n"
	     "as \"before: NAME\".\n");
}

int command_timeline(int argc, char **argv)
{
	static const struct measure_default defaults[] = { MEASURE_GOVERN_NOTHING,
							   { "off_cpu.min_duration_us", "1000" },
							   { "on_cpu.hertz", "99" },
							   { 0 } };
	static const struct measure_command command = { .options = &timeline_options,
							.tracker = "off_cpu",
							.compares = true,
							.defaults = defaults,
							.print_usage = print_usage,
							.check = check,
							.ask = ask,
							.measure = measure };

	return measure_command(&command, argc, argv);
}
