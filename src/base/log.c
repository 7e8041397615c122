// SPDX-License-Identifier: Apache-2.0
/* The agent's log. See log.h. */
#include "base/log.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/text.h"
#include "base/util.h"

enum { PATIENCE_MS = 200 }; /* wait for the reader of stderr */

static _Atomic int max_level = LOG_LEVEL_INFO; /* enum log_level */

void log_set_level(enum log_level level)
{
	max_level = level;
}

bool log_enabled(enum log_level level)
{
	return (int)level <= max_level;
}

/* sd-daemon(3): journald reads "<N>" as the priority. JOURNAL_STREAM names the journal's inode. */
static bool stderr_is_journal(void)
{
	static _Atomic int cached = -1;
	unsigned long long dev, ino;
	const char *stream;
	struct stat st;

	if (cached >= 0)
		return cached;
	stream = getenv("JOURNAL_STREAM");
	cached = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
		 fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
	return cached;
}

/*
 * A reader of stderr that stops reading must not block the agent: waits once, then drops messages
 * until there is room and logs their number.
 */
static bool has_room(void)
{
	static _Atomic bool stuck;
	static _Atomic unsigned long dropped;
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	unsigned long n;

	if (poll(&fd, 1, stuck ? 0 : PATIENCE_MS) == 0) {
		stuck = true;
		dropped++;
		return false;
	}
	stuck = false;
	n = atomic_exchange(&dropped, 0);
	if (n)
		fprintf(stderr,
			"underspan: warning: %lu message%s missing here: stderr was not read\n", n,
			counted(n, " is", "s are"));
	return true;
}

static void log_vwrite(enum log_level level, const char *fmt, va_list ap)
{
	static const char *const name[] = { "error: ", "warning: ", "", "debug: " };
	static const int priority[] = { 3, 4, 6, 7 };
	int saved_errno = errno;
	char said[2048], line[2048 + 32];
	int n;

	if (stderr_is_journal())
		n = snprintf(line, sizeof(line), "<%d>", priority[level]);
	else
		n = snprintf(line, sizeof(line), "underspan: %s", name[level]);
	vsnprintf(said, sizeof(said), fmt, ap);
	/* hostile names must not forge a second line or send terminal escapes */
	text_printable(line + n, sizeof(line) - (size_t)n - 1, said);
	strcat(line, "\n");
	if (has_room())
		fputs(line, stderr);
	errno = saved_errno;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	log_vwrite(level, fmt, ap);
	va_end(ap);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

void log_ratelimited(struct log_limit *limit, const char *fmt, ...)
{
	uint64_t now = now_ns();
	char text[1024];
	va_list ap;

	limit->repeats++;
	if (limit->active && now < limit->next_ns)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (limit->active && limit->repeats > 1)
		log_warn("%s (%llu times since the last message)", text,
			 (unsigned long long)limit->repeats);
	else
		log_warn("%s", text);
	limit->interval_ns = !limit->active ? 10 * NSEC_PER_SEC : limit->interval_ns * 2;
	if (limit->interval_ns > 300 * NSEC_PER_SEC)
		limit->interval_ns = 300 * NSEC_PER_SEC;
	limit->next_ns = now + limit->interval_ns;
	limit->repeats = 0;
	limit->active = true;
}

void log_ratelimited_end(struct log_limit *limit, const char *fmt, ...)
{
	va_list ap;

	if (!limit->active)
		return;
	if (log_enabled(LOG_LEVEL_INFO)) {
		va_start(ap, fmt);
		log_vwrite(LOG_LEVEL_INFO, fmt, ap);
		va_end(ap);
	}
	*limit = (struct log_limit){ 0 };
}
