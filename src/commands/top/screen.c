// SPDX-License-Identifier: Apache-2.0
/* The screen of `underspan top`. See screen.h. */
#include "commands/top/screen.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "commands/top/curses_abi.h"

enum { CTRL_C = 3, LOOK_MS = 250, KEPT_BYTES = 64 << 10 };

static struct curses nc;

static struct top_screen screen;
static struct termios saved;
static struct curses_screen *terminal;
static struct curses_window *window;
static pthread_t thread;
static int wake = -1, kept = -1, old_stderr = -1;
static atomic_bool ends;
static bool running, with_help;
static size_t first_line;
static int rows, columns;

int top_screen_check(struct why *why)
{
	static const char *const names[] = { "libncursesw.so.6", "libncursesw.so.5" };
	const char *kind = getenv("TERM");
	void *library = NULL;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
		return why_fail(why, ENOTSUP,
				"top: stdin and stdout have to be a terminal: use --once");
	if (!kind || !*kind || !strcmp(kind, "dumb"))
		return why_fail(why, ENOTSUP, "top: TERM names no terminal: use --once");
	for (size_t i = 0; i < ARRAY_SIZE(names) && !library; i++)
		library = dlopen(names[i], RTLD_NOW);
	if (!library)
		return why_fail(why, ENOTSUP,
				"top: libncursesw.so.6 is missing: install ncurses, or use --once");
#define LOAD(result, name, parameters) nc.name = (result(*) parameters)dlsym(library, #name);
	CURSES_FUNCTIONS(LOAD)
#define MISSING(result, name, parameters) || !nc.name
	if (0 CURSES_FUNCTIONS(MISSING))
		return why_fail(why, ENOTSUP,
				"top: libncursesw.so.6 is of an unknown version: use "
				"--once");
	return 0;
}

/* ---- drawing ---- */

static void put(int row, const char *text, int attributes)
{
	if (row >= rows)
		return;
	nc.wmove(window, row, 0);
	nc.wattrset(window, attributes);
	nc.waddnstr(window, text, (int)strlen(text));
	nc.wattrset(window, CURSES_NORMAL);
}

static void put_cut(int row, const char *text, int attributes)
{
	char line[TOP_LINE_BYTES];
	size_t width, bytes = text_prefix(text, (size_t)columns, &width);

	snprintf(line, sizeof(line), "%.*s%*s", (int)bytes, text, columns - (int)width, "");
	put(row, line, attributes);
}

static const char *const help_lines[] = {
	"p processes   t threads   l Python lines",
	"< > the column to sort by",
	"a   of all the time, or of the last second",
	"m   threads of a pool as one line, or each",
	"i   also threads that only idle",
	"up, down, space: further lines      q quit",
	"",
	"Percent of one second; threads together may exceed 100.",
	"A wait counts in the second in which it ends.",
	"CPU of lines: by 49 samples of each CPU a second;",
	"HID: of requests, before and between their own work;",
	"HELD: other threads waited for the GIL meanwhile;",
	"LAG: longest stall of an event loop; -: not measured.",
};

static void draw_list(int row)
{
	struct top_entry **list;
	size_t n = top_view_list(screen.sums, &screen.view, &list);
	char line[TOP_LINE_BYTES];

	if (first_line >= n)
		first_line = n ? n - 1 : 0;
	for (size_t i = first_line; i < n && row < rows; i++, row++) {
		top_view_line(screen.sums, &screen.view, list[i], (size_t)columns, line);
		put(row, line, CURSES_NORMAL);
	}
	if (!n)
		put_cut(row, screen.sums->all_ns ? "nothing waited" : "measuring ...",
			CURSES_NORMAL);
	free(list);
}

static void draw(void)
{
	char line[TOP_LINE_BYTES], clock[16];
	time_t now = time(NULL);
	struct tm tm;
	int row = 0;

	strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
	pthread_mutex_lock(screen.lock);
	nc.werase(window);
	snprintf(line, sizeof(line), "underspan top %s  %s, by %s  ? help q quit  %s", clock,
		 screen.view.whole ? "all the time" : "last second",
		 top_sort_names[screen.view.sort], screen.subject);
	put_cut(row++, line, CURSES_BOLD);
	top_view_lacks(screen.sums, &screen.view, line);
	if (*line)
		put_cut(row++, line, CURSES_NORMAL);
	top_view_head(&screen.view, (size_t)columns, line);
	put_cut(row++, line, CURSES_REVERSE);
	for (size_t i = 0; with_help && i < ARRAY_SIZE(help_lines); i++)
		put_cut(row++, help_lines[i], CURSES_NORMAL);
	if (!with_help)
		draw_list(row);
	pthread_mutex_unlock(screen.lock);
	nc.wrefresh(window);
}

/* ---- keys ---- */

static void sort_next(int step)
{
	int n = 0;

	while (top_sort_names[n])
		n++;
	screen.view.sort = (screen.view.sort + n + step) % n;
}

static void show(enum top_level level)
{
	screen.view.level = level;
	first_line = 0;
}

static void split_pools(void)
{
	pthread_mutex_lock(screen.lock);
	screen.sums->pools = !screen.sums->pools; /* of rows from now on */
	pthread_mutex_unlock(screen.lock);
}

static void scroll_by(int lines)
{
	first_line = lines < 0 && first_line < (size_t)-lines ? 0 : first_line + (size_t)lines;
}

/* False: quit. */
static bool on_key(int key)
{
	with_help = key == '?' && !with_help;
	switch (key) {
	case 'q':
	case CTRL_C:
		return false;
	case 'p':
		show(TOP_PROCESSES);
		break;
	case 't':
		show(TOP_THREADS);
		break;
	case 'l':
		show(TOP_LINES);
		break;
	case '<':
		sort_next(-1);
		break;
	case '>':
		sort_next(1);
		break;
	case 'a':
		screen.view.whole = !screen.view.whole;
		break;
	case 'i':
		screen.view.with_idle = !screen.view.with_idle;
		break;
	case 'm':
		split_pools();
		break;
	case CURSES_KEY_UP:
		scroll_by(-1);
		break;
	case CURSES_KEY_DOWN:
		scroll_by(1);
		break;
	case ' ':
		scroll_by(rows > 4 ? rows - 3 : 1);
		break;
	}
	return true;
}

/* ---- the thread ---- */

static bool find_size(void)
{
	struct winsize size = { 0 };
	int old_rows = rows, old_columns = columns;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	rows = size.ws_row;
	columns = size.ws_col < 20 ? 20 : size.ws_col < 1000 ? size.ws_col : 1000;
	return rows != old_rows || columns != old_columns;
}

static void *run(void *unused)
{
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = wake, .events = POLLIN } };
	bool quits = false;

	(void)unused;
	draw();
	while (!ends) {
		int n = poll(fds, 2, LOOK_MS), key;
		bool resized = find_size();
		uint64_t count;

		if (resized) {
			nc.resize_term(rows, columns);
			nc.wresize(window, rows, columns);
			nc.clearok(window, true);
		}
		if (fds[1].revents & POLLIN)
			(void)!read(wake, &count, sizeof(count));
		while (!quits && fds[0].revents & POLLIN && (key = nc.wgetch(window)) != CURSES_ERR)
			quits = !on_key(key);
		if (fds[0].revents & (POLLHUP | POLLERR))
			quits = true;
		if (quits) {
			screen.quit();
			fds[0].fd = -1;
		}
		if (!ends && (n > 0 || resized))
			draw();
	}
	return NULL;
}

/* ---- the terminal ---- */

/* A crash leaves a usable terminal. */
static void on_crash(int signal_number)
{
	static const char leave[] = "\033[?1049l\033[?25h\033[0m\r\n";

	(void)!write(STDOUT_FILENO, leave, sizeof(leave) - 1);
	tcsetattr(STDIN_FILENO, TCSANOW, &saved);
	raise(signal_number); /* the handler is reset */
}

static void handle_crashes(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
	struct sigaction action = { .sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND };

	for (size_t i = 0; i < ARRAY_SIZE(crashes); i++)
		sigaction(crashes[i], &action, NULL);
}

static void keep_stderr(void)
{
	kept = memfd_create("stderr", MFD_CLOEXEC);
	old_stderr = dup(STDERR_FILENO);
	if (kept >= 0 && old_stderr >= 0)
		dup2(kept, STDERR_FILENO);
}

static void give_stderr_back(void)
{
	char text[4096];
	off_t at = 0;
	ssize_t n;

	if (kept < 0 || old_stderr < 0)
		return;
	dup2(old_stderr, STDERR_FILENO);
	while (at < KEPT_BYTES && (n = pread(kept, text, sizeof(text), at)) > 0) {
		(void)!write(STDERR_FILENO, text, (size_t)n);
		at += n;
	}
	close(kept);
	close(old_stderr);
	kept = old_stderr = -1;
}

int top_screen_start(const struct top_screen *of, struct why *why)
{
	int err;

	screen = *of;
	setlocale(LC_CTYPE, "");
	tcgetattr(STDIN_FILENO, &saved);
	terminal = nc.newterm(NULL, stdout, stdin);
	if (!terminal)
		return why_fail(why, ENOTSUP, "top: the terminal %s is unknown here: use --once",
				getenv("TERM"));
	handle_crashes();
	atexit(top_screen_stop);
	keep_stderr();
	find_size();
	window = nc.newwin(0, 0, 0, 0);
	nc.raw();
	nc.noecho();
	nc.curs_set(0);
	nc.keypad(window, true);
	nc.nodelay(window, true);
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = pthread_create(&thread, NULL, run, NULL);
	running = !err;
	return err ? why_fail(why, err, "top: no thread: %s", strerror(err)) : 0;
}

void top_screen_draw(void)
{
	const uint64_t one = 1;

	if (wake >= 0)
		(void)!write(wake, &one, sizeof(one));
}

void top_screen_stop(void)
{
	if (running) {
		ends = true;
		top_screen_draw();
		pthread_join(thread, NULL);
		running = false;
	}
	if (!terminal)
		return;
	nc.endwin();
	nc.delscreen(terminal);
	terminal = NULL;
	give_stderr_back();
}
