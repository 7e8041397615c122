// SPDX-License-Identifier: Apache-2.0
/* Folded stacks as a table. See table.h. */
#include "commands/offcpu/table.h"

#include <string.h>
#include <sys/ioctl.h>

#include "base/text.h"
#include "base/util.h"

enum { TABLE_LINES = 20, IDLE_LINES = 3, LINE_MAX_BYTES = 8192, FRAMES_SHOWN = 64 };

static size_t columns_of(FILE *out)
{
	struct winsize size;

	if (!isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &size) || size.ws_col < 20)
		return LINE_MAX_BYTES;
	return size.ws_col;
}

static void add_frame(char *line, size_t size, const char *frame, size_t len)
{
	size_t at = strlen(line);

	folded_short_frame(frame, len, line + at, size - at);
}

static void add(char *line, size_t size, const char *text)
{
	size_t at = strlen(line);

	snprintf(line + at, size - at, "%s", text);
}

/* Starts of a stack's frames, at most `max`; returns the number. */
static size_t split(const char *text, const char **ret, size_t max)
{
	size_t n = 0;

	while (n < max) {
		ret[n++] = text;
		text = strchr(text, ';');
		if (!text)
			break;
		text++;
	}
	return n;
}

static bool is_separator(const char *frame)
{
	return !strncmp(frame, "--;", 3);
}

/* "thread: cause; innermost < ... < outermost; woken by thread" */
static void describe(char *line, size_t size, const char *text)
{
	const char *frames[FOLDED_FRAMES_MAX];
	size_t n = split(text, frames, FOLDED_FRAMES_MAX), end = 0, shown = 0;

	line[0] = 0;
	while (end < n && !is_separator(frames[end]))
		end++;
	add_frame(line, size, frames[0], strcspn(frames[0], ";"));
	for (size_t i = end; i-- > 1 && shown < FRAMES_SHOWN; shown++) {
		add(line, size, shown == 0 ? ": " : shown == 1 ? "; " : " < ");
		add_frame(line, size, frames[i], strcspn(frames[i], ";"));
	}
	if (end < n) {
		add(line, size, "; woken by ");
		add_frame(line, size, frames[n - 1], strlen(frames[n - 1]));
	}
}

static void print_line(FILE *out, const char *numbers, const char *text)
{
	char line[LINE_MAX_BYTES], clean[LINE_MAX_BYTES];
	size_t width = columns_of(out), used = strlen(numbers) + 2;

	describe(line, sizeof(line), text);
	line[text_prefix(line, width > used ? width - used : 0, NULL)] = 0;
	text_printable(clean, sizeof(clean), line); /* may be truncated inside a character */
	fprintf(out, "%s  %s\n", numbers, clean);
}

/* `of`: what it is a share of; 0: idle. */
static const char *numbers_of(char *buf, size_t size, uint64_t value, uint64_t of)
{
	if (of)
		snprintf(buf, size, "%12.3f  %5.1f%%", (double)value / 1e3,
			 100 * (double)value / (double)of);
	else
		snprintf(buf, size, "%12.3f  %6s", (double)value / 1e3, "idle");
	return buf;
}

/* Stacks from `*s` on that are idle, or those that are not; returns the number of lines. */
static size_t print_stacks(const struct folded_stack **s, bool idle, uint64_t of, size_t lines,
			   FILE *out)
{
	uint64_t rest = 0;
	size_t n = 0;
	char numbers[64];

	for (; *s && folded_is_idle(*s) == idle; *s = (*s)->hh.next) {
		if (!(*s)->value)
			continue;
		if (n++ < lines)
			print_line(out, numbers_of(numbers, sizeof(numbers), (*s)->value, of),
				   (*s)->text);
		else
			rest += (*s)->value;
	}
	if (rest)
		fprintf(out, "%s  %llu more stack%s\n",
			numbers_of(numbers, sizeof(numbers), rest, of),
			(unsigned long long)(n - lines), plural(n - lines));
	return n < lines ? n : lines;
}

void offcpu_table(struct folded *folded, FILE *out)
{
	const struct folded_stack *s;
	uint64_t busy = folded_total(folded) - folded_total_idle(folded);
	size_t lines;

	folded_sort_values(folded);
	folded_sort_idle_last(folded);
	if (folded_total(folded))
		fprintf(out, "%12s  %6s  %s\n", "ms", "share",
			"thread: waits for; where, innermost first");
	s = folded->stacks;
	lines = print_stacks(&s, false, busy, TABLE_LINES, out);
	lines = lines + IDLE_LINES < TABLE_LINES ? TABLE_LINES - lines : IDLE_LINES;
	print_stacks(&s, true, 0, lines, out);
}

void offcpu_table_changes(struct folded *folded, FILE *out)
{
	size_t n = 0;

	folded_sort_changes(folded);
	folded_sort_idle_last(folded);
	fprintf(out, "%12s  %12s  %12s  %s\n", "change, ms", "before", "now",
		"thread: waits for; where, innermost first");
	for (struct folded_stack *s = folded->stacks; s && n < TABLE_LINES; s = s->hh.next) {
		double now = (double)s->value / 1e3, before = (double)s->before / 1e3;
		char numbers[64];

		if (s->value == s->before)
			continue;
		n++;
		snprintf(numbers, sizeof(numbers), "%+12.3f  %12.3f  %12.3f", now - before, before,
			 now);
		print_line(out, numbers, s->text);
	}
}

void offcpu_table_top(struct folded *folded, size_t lines, FILE *out)
{
	size_t n = 0;

	folded_sort_changes(folded);
	folded_sort_idle_last(folded);
	fprintf(out, "%12s  %12s  %s\n", "last s, ms", "all, ms",
		"thread: waits for; where, innermost first");
	for (struct folded_stack *s = folded->stacks; s && n < lines; s = s->hh.next) {
		char numbers[64];

		/* waits counted as short in sums may now have rows */
		if (s->value <= s->before)
			continue;
		snprintf(numbers, sizeof(numbers), "%12.3f  %12.3f",
			 (double)(s->value - s->before) / 1e3, (double)s->value / 1e3);
		print_line(out, numbers, s->text);
		n++;
	}
}
