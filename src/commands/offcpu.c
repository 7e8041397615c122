// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan offcpu -p PID`: where the threads of one process were off the CPU, as a table, as
 * folded stacks or as a flame graph, also compared with a time before.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "commands/flamegraph.h"
#include "commands/measure.h"
#include "commands/offcpu_stacks.h"
#include "commands/offcpu_table.h"
#include "commands/open_waits.h"
#include "log.h"

static char *output, *before_path;
static bool folded_lines, wakers, top;
static struct folded before; /* --diff: what the file has; --top: what was a second ago */
static struct measured measured;
static int output_fd = -1;
static bool output_made; /* the file was not there before */

static const struct option options[] = {
	{ .key = "output",
	  .type = OPTION_STRING,
	  .target = &output,
	  .arg = "FILE.svg",
	  .help = "draw a flame graph into this file",
	  .letter = 'o' },
	{ .key = "folded",
	  .type = OPTION_BOOL,
	  .target = &folded_lines,
	  .help = "print all stacks, 'thread;frame;frame microseconds' each, for flame graph tools" },
	{ .key = "diff",
	  .type = OPTION_STRING,
	  .target = &before_path,
	  .arg = "BEFORE.folded",
	  .help = "compare with what --folded printed before: longer is red, shorter blue" },
	{ .key = "wakers",
	  .type = OPTION_BOOL,
	  .target = &wakers,
	  .help = "stacks go on with who ended the wait: '--', its stack, its thread" },
	{ .key = "top",
	  .type = OPTION_BOOL,
	  .target = &top,
	  .help = "a table of the last second, anew each second, until Ctrl-C" },
};

/* ---- before it costs anything ---- */

static int check_options(struct why *why)
{
	if (output && folded_lines)
		return why_fail(why, EINVAL,
				"folded: goes to stdout, and --output draws: give one");
	if (top && (output || folded_lines || before_path))
		return why_fail(why, EINVAL,
				"top: goes without --output, --folded and --diff: give one");
	if (top && !isatty(STDOUT_FILENO))
		return why_fail(why, EINVAL, "top: stdout is no terminal: leave it out");
	return 0;
}

/* What is there is left alone until there is something to put in its place. */
static int open_output(struct why *why)
{
	if (!output)
		return 0;
	output_fd = open(output, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	output_made = output_fd >= 0;
	if (output_fd < 0 && errno == EEXIST)
		output_fd = open(output, O_WRONLY | O_CLOEXEC);
	if (output_fd < 0)
		return why_fail(why, errno, "%s: cannot be written: %s", output, strerror(errno));
	return 0;
}

static void drop_output(void)
{
	if (output_fd >= 0 && output_made)
		unlink(output);
}

/* ---- results ---- */

static void describe(char *buf, size_t size, const struct folded *folded)
{
	int n = snprintf(buf, size, "process %u (%s), %.1f s: %.3f ms off the CPU",
			 measured.host_pid, measured.comm, measured_seconds(&measured),
			 (double)folded_total(folded) / 1e3);

	if (before_path && n > 0 && (size_t)n < size)
		snprintf(buf + n, size - (size_t)n, ", before %.3f ms",
			 (double)folded_total_before(folded) / 1e3);
}

static int draw(struct folded *folded, struct why *why)
{
	AUTO_FCLOSE FILE *out = NULL;
	char subtitle[256];
	struct stat st;
	int err = 0;

	if (fstat(output_fd, &st) == 0 && S_ISREG(st.st_mode) && ftruncate(output_fd, 0))
		return why_fail(why, errno, "%s: cannot be written: %s", output, strerror(errno));
	out = fdopen(output_fd, "w");
	if (!out)
		return why_fail(why, errno, "%s: %s", output, strerror(errno));
	describe(subtitle, sizeof(subtitle), folded);
	errno = 0;
	err = flamegraph_write(folded, before_path != NULL,
			       before_path ? "Off-CPU time, compared" : "Off-CPU time", subtitle,
			       out);
	if (err)
		return why_fail(why, -err, "%s: cannot be written: %s", output,
				strerror(err == -ENOMEM ? ENOMEM
					 : errno	? errno
							: EIO));
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%s: %s\n", output, subtitle);
	return 0;
}

static const char clear_screen[] = "\033[H\033[2J";

static void print_table(struct folded *folded)
{
	char line[256];

	if (top)
		fputs(clear_screen, stdout);
	describe(line, sizeof(line), folded);
	printf("%s\n", line);
	if (before_path)
		offcpu_table_changes(folded, stdout);
	else
		offcpu_table(folded, stdout);
	if (!folded->stacks)
		printf("no thread came back to a CPU\n");
	else
		printf("--folded prints whole stacks, -o FILE.svg draws them\n");
}

static int print(struct folded *folded, struct why *why)
{
	if (output)
		return draw(folded, why);
	if (folded_lines) {
		folded_sort_texts(folded);
		folded_write(folded, before_path != NULL, stdout);
	} else {
		print_table(folded);
	}
	return measure_flush(why);
}

enum { OPEN_WAITS_SHOWN = 5 };
static unsigned int open_waits;

/* What the numbers have not in them, where it does not mix with them. */
static void say_open_wait(const struct open_wait *wait)
{
	if (++open_waits > OPEN_WAITS_SHOWN)
		return;
	log_warn("thread %u (%s) still waits%s%s: %.1f s of that are in no stack, for a wait "
		 "counts when it is over",
		 wait->host_tid, wait->thread, *wait->syscall ? " in " : "", wait->syscall,
		 (double)wait->ns / 1e9);
}

static void say_open_waits(void)
{
	open_waits_end(offcpu_stacks_waited_ns, measured.end_ns, say_open_wait);
	if (open_waits > OPEN_WAITS_SHOWN)
		log_warn("and so do %u more threads", open_waits - OPEN_WAITS_SHOWN);
}

static int report(struct why *why)
{
	int err = offcpu_stacks_failed() ? -ENOMEM : offcpu_stacks_fold(&before);

	if (!err)
		err = print(&before, why);
	else
		why_fail(why, ENOMEM, "out of memory");
	if (measured.gone)
		log_warn("process %u ended after %.1f s", measured.host_pid,
			 measured_seconds(&measured));
	else if (!err)
		say_open_waits();
	return err;
}

/* ---- each second ---- */

static void refresh(void)
{
	struct folded now = { 0 };
	struct winsize size = { 0 };

	/* waits of the second that has just begun are not among the sums yet */
	if (offcpu_stacks_fold(&now))
		return;
	for (struct folded_stack *s = now.stacks; s; s = s->hh.next) {
		struct folded_stack *last = folded_get(&before, s->text, strlen(s->text));

		s->before = last ? last->value : 0;
	}
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row)
		size.ws_row = 24;
	fputs(clear_screen, stdout);
	printf("process %u (%s), %.0f s: %.3f ms off the CPU; Ctrl-C ends it\n", measured.host_pid,
	       measured.comm, measured_seconds(&measured), (double)folded_total(&now) / 1e3);
	offcpu_table_top(&now, size.ws_row > 6 ? size.ws_row - 4U : 2U, stdout);
	fflush(stdout);
	folded_free(&before);
	before = now;
}

static void each_second(void)
{
	static bool begun;

	if (!begun)
		open_waits_begin(measured.host_pid);
	begun = true;
	if (top)
		refresh();
}

static int measure(struct why *why)
{
	static char *const trackers[] = { "off_cpu", "gil_wait" };
	const struct measure what = { .trackers = { (char **)trackers, ARRAY_SIZE(trackers) },
				      .default_duration_ns = top ? 0 : 5 * NSEC_PER_SEC,
				      .progress = !top,
				      .row = offcpu_stacks_row,
				      .each_second = each_second };
	int err = measure_check(&measured, why);

	if (!err && before_path)
		err = folded_read(&before, before_path, why);
	if (!err)
		err = open_output(why);
	offcpu_stacks_init(wakers);
	if (!err)
		err = measure_run(&what, &measured, why);
	if (!err && top) /* what was a second ago is not what was before */
		folded_free(&before);
	if (!err)
		err = report(why);
	if (err)
		drop_output();
	offcpu_stacks_free();
	folded_free(&before);
	return err;
}

/*
 * gil_wait is there to tell waits for the GIL from those for other locks: no rows of it are wanted.
 * The sums are short-lived, so that there is room for all of them.
 */
static int set_defaults(struct why *why)
{
	const struct option_table own[] = { measure_tracker_options("off_cpu"), { 0 } };
	const struct option_table gil[] = { measure_tracker_options("gil_wait"), { 0 } };
	int err = measure_govern_nothing(why);

	if (!err)
		err = config_set_default(own, "off_cpu.min_duration_us", "1000", why);
	if (!err)
		err = config_set_default(own, "off_cpu.profile_interval", "1", why);
	if (!err)
		err = config_set_default(gil, "gil_wait.min_duration_us", "3600000000", why);
	return err;
}

static void print_help(const struct option_table *tables)
{
	puts("usage: underspan offcpu -p PID [-d S] [-o FILE.svg | --folded] [--diff=BEFORE.folded] "
	     "[--wakers]\n"
	     "       underspan offcpu -p PID --top\n\n"
	     "Where the threads of a process, Python or not, were off the CPU: asleep, waiting, or\n"
	     "runnable without one. Waits of off_cpu.min_duration_us and longer, which is 1000 here\n"
	     "unless given, have Python frames, shorter ones native ones.\n");
	config_print_help(tables);
}

int command_offcpu(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       measure_options,
					       measure_tracker_options("off_cpu"),
					       { 0 } };
	struct why why = { { 0 } };
	int err = set_defaults(&why);

	if (!err)
		err = config_parse(tables, argc, argv, NULL, NULL, &why);
	if (err > 0) {
		print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = check_options(&why);
	if (!err)
		err = measure(&why);
	measure_end();
	config_free(tables);
	return command_end(err, &why);
}
