// SPDX-License-Identifier: Apache-2.0
/* Locks as a table. See locks.h. */
#include "commands/offcpu/locks.h"

#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/report.h"

enum { LINE_MAX_BYTES = 1024, WAKERS_SHOWN = 2 };

static void add_wakers(char *line, size_t size, const json_t *lock)
{
	const json_t *wakers = json_object_get(lock, "wakers"), *waker;
	bool sampled = json_is_true(json_object_get(lock, "sampled"));
	bool held = report_has(json_array_get(wakers, 0), "held_ms");
	size_t i, at;

	json_array_foreach (wakers, i, waker) {
		if (i == WAKERS_SHOWN)
			break;
		at = strlen(line);
		snprintf(line + at, size - at, "%s %.60s (%.0f time%s",
			 i	? ","
			 : held ? "; released by"
				: "; woken by",
			 report_text(waker, "thread"), report_number(waker, "times"),
			 plural(report_number(waker, "times")));
		at = strlen(line);
		if (held)
			snprintf(line + at, size - at, ", others waited %s%.1f ms)",
				 sampled ? "at least " : "", report_number(waker, "held_ms"));
		else
			snprintf(line + at, size - at, ")");
	}
	at = strlen(line);
	if (json_array_size(wakers) > WAKERS_SHOWN)
		snprintf(line + at, size - at, ", %zu more thread%s",
			 json_array_size(wakers) - WAKERS_SHOWN,
			 plural(json_array_size(wakers) - WAKERS_SHOWN));
}

static void print_lock(const json_t *lock, FILE *out)
{
	char line[LINE_MAX_BYTES], clean[LINE_MAX_BYTES];
	const char *least = json_is_true(json_object_get(lock, "sampled")) ? "+" : " ";
	const char *address = json_string_value(json_object_get(lock, "address"));

	snprintf(line, sizeof(line), "%s, in %.300s",
		 address					  ? address
		 : json_is_true(json_object_get(lock, "message")) ? "a message"
								  : "a lock, not known which",
		 report_text(lock, "place"));
	add_wakers(line, sizeof(line), lock);
	text_printable(clean, sizeof(clean), line);
	fprintf(out, "%12.3f  %8.0f  %12.3f  %7.0f%s %7.0f%s %s\n", report_number(lock, "ms"),
		report_number(lock, "waits"), report_number(lock, "longest_ms"),
		report_number(lock, "threads"), least, report_number(lock, "at_once"), least,
		clean);
}

static void print_storms(const json_t *report, FILE *out)
{
	const json_t *storm;
	size_t i;

	json_array_foreach (json_object_get(report, "storms"), i, storm)
		text_print_line(out, "%s", report_text(storm, "said"));
}

void locks_print(const json_t *report, size_t lines, FILE *out)
{
	const json_t *locks = json_object_get(report, "locks"), *lock;
	bool sampled = false;
	size_t i;

	print_storms(report, out);
	if (!json_array_size(locks) || !lines)
		return;
	fprintf(out, "%12s  %8s  %12s  %7s  %7s  %s\n", "ms", "waits", "longest, ms", "threads",
		"at once", "lock: where; which thread ended the waits");
	json_array_foreach (locks, i, lock) {
		if (i >= lines)
			continue;
		print_lock(lock, out);
		sampled |= json_is_true(json_object_get(lock, "sampled"));
	}
	if (i > lines)
		fprintf(out, "%zu more lock%s\n", i - lines, plural(i - lines));
	if (report_number(report, "left_out") > 0)
		fprintf(out, "%.0f more wait%s not included, for their number\n",
			report_number(report, "left_out"),
			counted(report_number(report, "left_out"), " is", "s are"));
	fputs("These are single waits, of off_cpu.min_duration_us and longer; shorter ones are in "
	      "the sums of the stacks only.\n",
	      out);
	if (sampled)
		fputs("+: of a sample, whose weights make waits and ms right; a least value\n",
		      out);
}
