// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan offcpu`: off-CPU time by stack of a process, live, or of a window of a database, as
 * table, folded stacks or flame graph, optionally compared with an earlier time.
 */
#include <string.h>
#include <sys/ioctl.h>

#include "commands/commands.h"
#include "commands/offcpu/forms.h"
#include "commands/offcpu/locks.h"
#include "commands/measure_command.h"
#include "commands/output_file.h"
#include "commands/offcpu/stacks.h"
#include "commands/offcpu/stored.h"
#include "commands/offcpu/table.h"
#include "commands/offcpu/open_waits.h"
#include "commands/report.h"
#include "commands/watched.h"
#include "commands/window.h"
#include "commands/window_text.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/util.h"
#include "trackers/gil_addresses.h"

static char *output, *before_path;
static bool folded_lines, as_json, wakers, native, with_cpu, top;
static enum offcpu_form form;
static int by; /* index into by_names */
enum { BY_STACK, BY_LOCK };
static const char *const by_names[] = { "stack", "lock", NULL };
static struct lock_waits lock_waits = { .is_no_lock = gil_addresses_has }; /* live */
static json_t *by_lock;	     /* their sums, or the window's; NULL: not known */
static struct folded before; /* --diff: the file's stacks; --top: stacks of a second ago */
static struct measured measured;
static json_t *stored; /* the window's report; NULL: live */
static struct output_file output_file;

static const struct option options[] = {
	{ .key = "output",
	  .type = OPTION_STRING,
	  .target = &output,
	  .arg = "FILE",
	  .help = "write " FORM_FILES "; -: to stdout, SVG unless --folded or --json is given",
	  .letter = 'o',
	  .flag_only = true },
	{ .key = "folded",
	  .type = OPTION_BOOL,
	  .target = &folded_lines,
	  .help = "print all stacks, 'thread;frame;frame microseconds' each, for flame graph tools",
	  .flag_only = true },
	{ .key = "json",
	  .type = OPTION_BOOL,
	  .target = &as_json,
	  .help = "print all stacks as a JSON object",
	  .flag_only = true },
	{ .key = "diff",
	  .type = OPTION_STRING,
	  .target = &before_path,
	  .arg = "BEFORE.folded",
	  .help = "compare with an earlier output of --folded: longer is red, shorter blue" },
	{ .key = "native",
	  .type = OPTION_BOOL,
	  .target = &native,
	  .help = "native and kernel frames below the Python frames, in one stack",
	  .flag_only = true },
	{ .key = "cpu",
	  .type = OPTION_BOOL,
	  .target = &with_cpu,
	  .help = "add the time on a CPU, by samples of the Python code there: the leaf [cpu]",
	  .flag_only = true },
	{ .key = "by",
	  .type = OPTION_CHOICE,
	  .target = &by,
	  .arg = "WHAT",
	  .help = "sum the table by stack, or by lock (waits of off_cpu.min_duration_us and "
		  "longer)",
	  .choices = by_names,
	  .flag_only = true },
	{ .key = "wakers",
	  .type = OPTION_BOOL,
	  .target = &wakers,
	  .help = "append the thread that ended the wait: '--', the waker's stack, the waker's "
		  "thread" },
	{ .key = "top",
	  .type = OPTION_BOOL,
	  .target = &top,
	  .help = "a table of the last second, anew each second, until Ctrl-C" },
};
const struct option_table offcpu_options = { options, ARRAY_SIZE(options) };

/* ---- output ---- */

static bool to_stdout(void)
{
	return !output || !strcmp(output, "-");
}

/* Chooses the output form, given by a flag or by the file's suffix, not both. */
static int choose_form(struct why *why)
{
	enum offcpu_form named = to_stdout() ? FORM_TABLE : offcpu_form_of(output);

	if (folded_lines && as_json)
		return why_fail(why, EINVAL, "folded and json exclude each other: give only one");
	form = folded_lines ? FORM_FOLDED : as_json ? FORM_JSON : FORM_TABLE;
	if (form != FORM_TABLE && named != FORM_TABLE && named != form)
		return why_fail(why, EINVAL, "output: the name %s does not fit --%s: use FILE.%s",
				output, as_json ? "json" : "folded", as_json ? "json" : "folded");
	if (form == FORM_TABLE)
		form = named;
	if (output && form == FORM_TABLE && !to_stdout() && !output_is_device(output))
		return why_fail(why, EINVAL, "output: %s: use " FORM_FILES, output);
	if (output && form == FORM_TABLE)
		form = FORM_SVG;
	return 0;
}

static bool is_compared(void)
{
	return before_path || window_against.since_ns;
}

/* What the table of locks leaves out, and the files that have no table of locks. */
static int check_by_lock(struct why *why)
{
	if (form == FORM_TABLE && (wakers || native))
		return why_fail(why, EINVAL,
				"%s: is of stacks, and --by=lock prints none%s: leave out --%s, or "
				"--by=lock",
				wakers ? "wakers" : "native",
				wakers ? " (its lines name the threads that ended the waits)" : "",
				wakers ? "wakers" : "native");
	if (form != FORM_TABLE && form != FORM_JSON && form != FORM_HTML)
		return why_fail(why, EINVAL,
				"by: lock is no part of that file: use -o FILE.html, -o FILE.json, "
				"or no file for a table");
	return 0;
}

static int check(struct why *why)
{
	int err;

	if (top && (output || folded_lines || as_json || before_path || window_answers()))
		return why_fail(why, EINVAL,
				"top: shows the last second, on a terminal: leave out --output, "
				"--folded, --json, --diff and the database");
	if (by == BY_LOCK && (top || is_compared() || folded_lines))
		return why_fail(why, EINVAL,
				"by: lock is a table of its own, and a part of --json and of "
				"FILE.html: leave out --top, --folded, --diff and --against-since");
	if (before_path && window_against.since_ns)
		return why_fail(why, EINVAL,
				"diff and against-since exclude each other: give only one");
	if (top && !isatty(STDOUT_FILENO))
		return why_fail(why, EINVAL, "top: stdout is not a terminal: run without --top");
	err = choose_form(why);
	return !err && by == BY_LOCK ? check_by_lock(why) : err;
}

static int open_output(struct why *why)
{
	return to_stdout() ? 0 : output_file_open(&output_file, output, why);
}

/* ---- results ---- */

static int64_t from_us(void)
{
	return stored ? (int64_t)report_number(stored, "from_us")
		      : (int64_t)clock_wall_us(measured.begin_ns);
}

static uint64_t duration_ns(void)
{
	if (!stored)
		return measured.end_ns - measured.begin_ns;
	return (uint64_t)(report_number(stored, "to_us") - report_number(stored, "from_us")) *
	       NSEC_PER_USEC;
}

/* Threads of an hour wait for days: "612.450 ms", "86400.1 s". */
static const char *time_text(int64_t us, char *buf, size_t size)
{
	if (us < 10000000)
		snprintf(buf, size, "%.3f ms", (double)us / 1e3);
	else
		snprintf(buf, size, "%.1f s", (double)us / 1e6);
	return buf;
}

static void describe(char *buf, size_t size, const struct folded *folded)
{
	const json_t *against = json_object_get(stored, "against");
	char subject[800], when[160], time[32];
	int n;

	measure_describe(stored, &measured, subject, sizeof(subject));
	n = snprintf(buf, size, "%s: %s %soff the CPU", subject,
		     time_text(folded_total(folded), time, sizeof(time)),
		     with_cpu ? "on and " : "");
	if (is_compared() && n > 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", before %s",
			      time_text(folded_total_before(folded), time, sizeof(time)));
	if (against && n > 0 && (size_t)n < size) {
		window_time_text(against, when, sizeof(when));
		snprintf(buf + n, size - (size_t)n, " (%s)", when);
	}
}

static int write_form(struct folded *folded, const char *subtitle, FILE *out)
{
	const struct offcpu_result result = { folded,  from_us(),     duration_ns(), stored,
					      by_lock, is_compared(), with_cpu,	     subtitle };

	return offcpu_write(form, &result, out);
}

static int write_file(struct folded *folded, struct why *why)
{
	char subtitle[1280];
	int err;
	AUTO_FCLOSE FILE *out = output_file_begin(&output_file, &err, why);

	if (!out)
		return err;
	describe(subtitle, sizeof(subtitle), folded);
	errno = 0;
	err = write_form(folded, subtitle, out);
	if (err)
		return why_fail(why, -err, "%s: cannot be written: %s", output,
				strerror(err == -ENOMEM ? ENOMEM
					 : errno	? errno
							: EIO));
	if (isatty(STDERR_FILENO))
		text_print_line(stderr, "%s: %s", output, subtitle);
	return 0;
}

static void clear_screen(void)
{
	fputs(terminal_obeys(STDOUT_FILENO) ? "\033[H\033[2J" : "\n", stdout);
}

enum { LOCKS_SHOWN = 20, LOCKS_SHOWN_BELOW = 5 };

/* ", 4100.000 ms of it idle": these are the last lines. */
static const char *idle_text(const struct folded *folded, char *buf, size_t size)
{
	uint64_t us = folded_total_idle(folded);
	char time[32];

	*buf = 0;
	if (us)
		snprintf(buf, size, ", %s of it idle", time_text((int64_t)us, time, sizeof(time)));
	return buf;
}

static void print_table(struct folded *folded)
{
	char line[1280], idle[64];

	if (top)
		clear_screen();
	describe(line, sizeof(line), folded);
	printf("%s%s\n", line, idle_text(folded, idle, sizeof(idle)));
	if (is_compared())
		offcpu_table_changes(folded, stdout);
	else if (by == BY_STACK)
		offcpu_table(folded, stdout);
	if (by_lock)
		locks_print(by_lock, by == BY_LOCK ? LOCKS_SHOWN : LOCKS_SHOWN_BELOW, stdout);
	if (by == BY_LOCK && by_lock && !json_array_size(json_object_get(by_lock, "locks")))
		printf("no wait for a lock of off_cpu.min_duration_us or longer\n");
	if (stored && form == FORM_TABLE)
		window_print_notes(stored);
	if (!folded->stacks)
		printf("no thread came back to a CPU\n");
	else
		printf("--folded prints whole stacks, -o FILE.html draws a flame graph\n");
}

static int print(struct folded *folded, struct why *why)
{
	char subtitle[1280];

	if (!to_stdout())
		return write_file(folded, why);
	describe(subtitle, sizeof(subtitle), folded);
	if (form == FORM_TABLE)
		print_table(folded);
	else if (write_form(folded, subtitle, stdout) == -ENOMEM)
		return why_fail(why, ENOMEM, "out of memory");
	return measure_flush(why);
}

enum { OPEN_WAITS_SHOWN = 5 };
static unsigned int open_waits;

/* Reports an open wait, not included in the numbers, apart from them. */
static void say_open_wait(const struct open_wait *wait)
{
	if (++open_waits > OPEN_WAITS_SHOWN)
		return;
	log_warn("thread %u (%s) still waits%s%s: %.1f s are in no stack: a wait is counted when "
		 "the wait ends",
		 wait->host_tid, wait->thread, *wait->syscall ? " in " : "", wait->syscall,
		 (double)wait->ns / 1e9);
}

static void say_open_waits(void)
{
	open_waits_end(offcpu_stacks_waited_ns, measured.end_ns, say_open_wait);
	if (open_waits > OPEN_WAITS_SHOWN)
		log_warn("and so %s %u more thread%s",
			 counted(open_waits - OPEN_WAITS_SHOWN, "does", "do"),
			 open_waits - OPEN_WAITS_SHOWN, plural(open_waits - OPEN_WAITS_SHOWN));
}

/* Reports missing processes; the others were measured. */
static int say_not_there(struct why *why)
{
	int err = 0;

	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (!w->named || w->there)
			continue;
		if (err)
			log_error("%s", why->text);
		err = why_fail(why, ESRCH, "%s", w->reason.text);
	}
	return err;
}

static int report(struct why *why)
{
	int err = offcpu_stacks_failed() ? -ENOMEM : offcpu_stacks_fold(&before);

	if (!err && !top) {
		by_lock = locks_report(&lock_waits);
		err = by_lock ? 0 : -ENOMEM;
	}
	if (!err)
		err = print(&before, why);
	else
		why_fail(why, ENOMEM, "out of memory");
	if (measured.gone)
		log_warn("%s ended after %.1f s", watched_short_text(),
			 measured_seconds(&measured));
	else if (!err)
		say_open_waits();
	return err ? err : say_not_there(why);
}

/* ---- refresh ---- */

static void refresh(void)
{
	struct folded now = { 0 };
	struct winsize size = { 0 };

	/* sums of the current second are incomplete */
	if (offcpu_stacks_fold(&now))
		return;
	for (struct folded_stack *s = now.stacks; s; s = s->hh.next) {
		struct folded_stack *last = folded_get(&before, s->text, strlen(s->text));

		s->before = last ? last->value : 0;
	}
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row)
		size.ws_row = 24;
	clear_screen();
	printf("%s, %.0f s: %.3f ms off the CPU; stop with Ctrl-C\n", watched_text(),
	       measured_seconds(&measured), (double)folded_total(&now) / 1e3);
	offcpu_table_top(&now, size.ws_row > 6 ? size.ws_row - 4U : 2U, stdout);
	fflush(stdout);
	folded_free(&before);
	before = now;
}

static void each_second(void)
{
	enum { DROP_SECONDS = 10 }; /* a wait for a GIL not found yet has the cause lock */
	static unsigned int drops;
	static bool begun;

	for (const struct watched *w = watched_first(); w && !begun; w = w->next)
		open_waits_begin(w->host_pid);
	begun = true;
	if (!top && drops++ < DROP_SECONDS)
		locks_drop(&lock_waits);
	if (top)
		refresh();
}

static void on_row(const struct table *table, const void *row)
{
	offcpu_stacks_row(table, row);
	if (!top)
		locks_add_row(&lock_waits, table, row);
}

static int measure(struct why *why)
{
	static char *const trackers[] = { "off_cpu", "gil_wait", "on_cpu" };
	const struct measure what = { .trackers = { (char **)trackers, with_cpu ? 3 : 2 },
				      .probes = "gil_wait",
				      .default_duration_ns = top ? 0 : 5 * NSEC_PER_SEC,
				      .progress = !top,
				      .row = on_row,
				      .each_second = each_second };
	int err = measure_check(&measured, why);

	if (!err && before_path)
		err = folded_read(&before, before_path, why);
	if (!err)
		err = open_output(why);
	offcpu_stacks_init(wakers, native);
	if (!err)
		offcpu_stacks_name_processes(watched_first()->next ? 0 : measured.host_pid);
	if (!err)
		err = measure_run(&what, &measured, why);
	if (!err && top) /* the previous second is no comparison */
		folded_free(&before);
	if (!err)
		err = report(why);
	if (err)
		output_file_drop(&output_file);
	offcpu_stacks_free();
	locks_free(&lock_waits);
	json_decref(by_lock);
	folded_free(&before);
	return err;
}

/* A window of a database. */
static int ask(struct why *why)
{
	int err = before_path ? folded_read(&before, before_path, why) : 0;

	if (!err)
		err = open_output(why);
	if (!err)
		err = offcpu_stored(measure_pids(),
				    (struct offcpu_choice){ wakers, native, with_cpu }, &before,
				    &stored, why);
	by_lock = json_object_get(stored, "by_lock");
	if (json_is_null(json_object_get(stored, "cpu_us"))) /* not measured: a note says so */
		with_cpu = false;
	if (!err)
		err = print(&before, why);
	if (err)
		output_file_drop(&output_file);
	json_decref(stored);
	folded_free(&before);
	return err;
}

static void print_usage(void)
{
	puts("usage: underspan offcpu -p PID... [-d S] [-o FILE.html | --folded | --json]\n"
	     "                        [--diff=BEFORE.folded] [--wakers] [--native]\n"
	     "                        [--cpu] [--by=lock]\n"
	     "       underspan offcpu -p PID... --top\n"
	     "       underspan offcpu (--clickhouse=URL | --store=DIR) [--since=AGO]\n"
	     "                        [--until=AGO] [--service=NAME] [--against-since=AGO]\n"
	     "                        [-o FILE.html | --folded | --json]\n\n"
	     "Where the threads of a process, Python or not, were off the CPU: asleep,\n"
	     "waiting, or runnable without a CPU. Waits of off_cpu.min_duration_us and longer\n"
	     "have Python frames, shorter waits have native frames. --cpu adds the time on a\n"
	     "CPU, by samples.\n"
	     "From a database: of a window of time, of all threads of a name together, in\n"
	     "whole intervals of ebpf_off_cpu_profile: those that ended in the window.\n");
}

int command_offcpu(int argc, char **argv)
{
	/*
	 * gil_wait runs without rows, to separate GIL waits from other lock waits. Sums are flushed
	 * often, so that the maps have room.
	 */
	static const struct measure_default defaults[] = { MEASURE_GOVERN_NOTHING,
							   { "off_cpu.min_duration_us", "1000" },
							   { "off_cpu.profile_interval", "1" },
							   { "on_cpu.hertz", "99" },
							   { "gil_wait.min_duration_us", "1h" },
							   { 0 } };
	static const struct measure_command command = { .options = &offcpu_options,
							.tracker = "off_cpu",
							.compares = true,
							.defaults = defaults,
							.print_usage = print_usage,
							.check = check,
							.ask = ask,
							.measure = measure };

	return measure_command(&command, argc, argv);
}
