// SPDX-License-Identifier: Apache-2.0
/* Lines of `underspan top`. See view.h. */
#include "commands/top/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

enum { NAME_LEAST = 12, LINE_LEAST = 20, PID_WIDTH = 7 };

enum what { PART, WAITS, HIDDEN, REQUESTS, BUSY, WAITING, LAG, THREADS };
enum { IN_PROCESSES = 1, IN_THREADS = 2, IN_LINES = 4, IN_ALL = 7 };

/* In order of display; the last ones in `keep` are left out first where a line is short. */
static const struct view_column {
	const char *head;
	size_t width;
	int keep; /* 0: left out last */
	unsigned int levels;
	enum what what;
	enum top_part part;
} columns_of[] = {
	{ "THR", 4, 6, IN_THREADS, THREADS, 0 },
	{ "REQ/s", 6, 5, IN_PROCESSES, REQUESTS, 0 },
	{ "BUSY", 5, 2, IN_PROCESSES, BUSY, 0 },
	{ "QUE", 4, 1, IN_PROCESSES, WAITING, 0 },
	{ "HID%", 5, 0, IN_PROCESSES, HIDDEN, 0 },
	{ "WAIT%", 6, 1, IN_THREADS | IN_LINES, WAITS, 0 },
	{ "CPU%", 5, 2, IN_ALL, PART, TOP_CPU },
	{ "GIL%", 5, 0, IN_ALL, PART, TOP_GIL },
	{ "HELD%", 6, 3, IN_THREADS, PART, TOP_HELD },
	{ "GC%", 5, 3, IN_ALL, PART, TOP_GC },
	{ "LOCK%", 6, 4, IN_ALL, PART, TOP_LOCK },
	{ "NET%", 5, 5, IN_ALL, PART, TOP_NET },
	{ "RUNQ%", 6, 4, IN_ALL, PART, TOP_RUNQ },
	{ "DISK%", 6, 8, IN_ALL, PART, TOP_DISK },
	{ "SLP%", 5, 7, IN_THREADS | IN_LINES, PART, TOP_SLEEP },
	{ "OTH%", 5, 9, IN_ALL, PART, TOP_OTHER },
	{ "IDLE%", 6, 9, IN_THREADS, PART, TOP_IDLE },
	{ "LAGms", 6, 6, IN_PROCESSES, LAG, 0 },
};

const char *const top_sort_names[] = { "waits", "hidden", "requests", "gil",   "lock",
				       "net",	"disk",	  "sleep",    "other", "runq",
				       "idle",	"cpu",	  "gc",	      "held",  NULL };

uint64_t top_waits_ns(const struct top_sum *sum)
{
	uint64_t ns = 0;

	for (int part = 0; part < TOP_IDLE; part++)
		ns += sum->ns[part];
	return ns;
}

static const struct top_sum *sum_of(const struct top_view *view, const struct top_entry *e)
{
	return view->whole ? &e->all : &e->shown;
}

/* ---- the list ---- */

static const struct top_view *sorted_view; /* while a list is sorted */
static uint64_t sorted_whole_ns;

static double order_in(const struct top_sum *sum)
{
	switch (sorted_view->sort) {
	case TOP_SORT_WAITS:
		return (double)(top_waits_ns(sum) + sum->ns[TOP_GC]);
	case TOP_SORT_HIDDEN:
		return sum->hidden_ns;
	case TOP_SORT_REQUESTS:
		return sum->requests;
	default:
		return (double)top_part_ns(sum,
					   (enum top_part)(sorted_view->sort - TOP_SORT_PARTS));
	}
}

static double per(double value, uint64_t whole_ns)
{
	return whole_ns ? value / (double)whole_ns : 0;
}

/* Of two windows: the change, as a share of the time measured. */
static double order_of(const struct top_entry *e)
{
	double now = order_in(sum_of(sorted_view, e));
	const struct top_sums *before = sorted_view->before;

	if (!before)
		return now;
	return fabs(per(now, sorted_whole_ns) -
		    per(e->earlier ? order_in(&e->earlier->all) : 0, before->all_ns));
}

static int by_order(const void *a, const void *b)
{
	const struct top_entry *x = *(struct top_entry *const *)a;
	const struct top_entry *y = *(struct top_entry *const *)b;
	double p = order_of(x), q = order_of(y);

	if (p != q)
		return p < q ? 1 : -1;
	if (x->host_pid != y->host_pid)
		return x->host_pid < y->host_pid ? -1 : 1;
	return strcmp(x->name, y->name);
}

static bool is_shown(const struct top_view *view, const struct top_entry *e,
		     const struct top_sum *sum)
{
	if (e->level != view->level)
		return false;
	if (e->earlier && is_shown(view, e->earlier, &e->earlier->all))
		return true;
	return view->with_idle ||
	       top_waits_ns(sum) + top_part_ns(sum, TOP_CPU) + sum->ns[TOP_GC] > 0 ||
	       sum->requests > 0 || sum->lag_ns || sum->ns[TOP_HELD] || e->level == TOP_PROCESSES;
}

size_t top_view_list(struct top_sums *sums, const struct top_view *view, struct top_entry ***ret)
{
	struct top_entry **list = calloc(HASH_COUNT(sums->entries) + 1, sizeof(struct top_entry *));
	size_t n = 0;

	*ret = list;
	for (struct top_entry *e = sums->entries; e && list; e = e->hh.next) {
		if (is_shown(view, e, sum_of(view, e)))
			list[n++] = e;
	}
	sorted_view = view;
	sorted_whole_ns = view->whole ? sums->all_ns : sums->shown_ns;
	if (list)
		qsort(list, n, sizeof(struct top_entry *), by_order);
	return n;
}

/* ---- columns ---- */

/* Sets which columns fit; returns the width left for the name. */
static size_t fit(const struct top_view *view, size_t columns, bool shown[ARRAY_SIZE(columns_of)])
{
	size_t used = PID_WIDTH + 1, least = view->level == TOP_LINES ? LINE_LEAST : NAME_LEAST;

	for (size_t i = 0; i < ARRAY_SIZE(columns_of); i++) {
		shown[i] = columns_of[i].levels & (1U << view->level);
		used += shown[i] ? columns_of[i].width : 0;
	}
	for (int keep = 9; keep > 0; keep--) {
		for (size_t i = ARRAY_SIZE(columns_of); i-- > 0;) {
			if (used + least <= columns)
				return columns - used;
			if (!shown[i] || columns_of[i].keep != keep)
				continue;
			shown[i] = false;
			used -= columns_of[i].width;
		}
	}
	return columns > used ? columns - used : 1;
}

static void put_name(FILE *out, const char *name, size_t room)
{
	size_t width, bytes = text_prefix(name, room, &width);

	if (name[bytes] && room > 4) {
		bytes = text_prefix(name, room - 2, &width);
		fprintf(out, "%.*s..", (int)bytes, name);
		width += 2;
	} else {
		fprintf(out, "%.*s", (int)bytes, name);
	}
	fprintf(out, "%*s", (int)(room - width), "");
}

static void put_share(FILE *out, size_t width, double ns, uint64_t whole_ns)
{
	double percent = whole_ns ? 100 * ns / (double)whole_ns : 0;

	fprintf(out, percent > 0 && percent < 9.95 ? "%*.1f" : "%*.0f", (int)width, percent);
}

/* "12+": a least value, as requests lacked hidden parts. */
static void put_hidden(FILE *out, size_t width, const struct top_sum *sum, uint64_t whole_ns)
{
	bool least = top_sum_hidden_is_least(sum);

	put_share(out, width - least, sum->hidden_ns, whole_ns);
	if (least)
		fputc('+', out);
}

static void put_number(FILE *out, size_t width, bool known, double value)
{
	if (known)
		fprintf(out, "%*.0f", (int)width, value);
	else
		fprintf(out, "%*s", (int)width, "-");
}

/* Whether the source of a column measured all the time. */
static bool is_known(const struct top_sums *sums, const struct view_column *c,
		     const struct top_entry *e, const struct top_sum *sum, unsigned int lacks,
		     unsigned int of_process)
{
	switch (c->what) {
	case PART:
		return top_part_is_known(sums, e, sum, c->part, lacks, of_process);
	case WAITS:
		return !(lacks & TOP_OF_OFF_CPU);
	case HIDDEN:
	case REQUESTS:
		return e->has_requests && !(lacks & TOP_OF_REQUEST);
	case BUSY:
		return e->busy >= 0 && !(lacks & TOP_OF_REQUEST);
	case WAITING:
		return e->waiting >= 0 && !(lacks & TOP_OF_REQUEST);
	default:
		return true;
	}
}

static void put_cell(FILE *out, const struct top_sums *sums, const struct top_view *view,
		     const struct view_column *c, const struct top_entry *e)
{
	const struct top_sum *sum = sum_of(view, e);
	uint64_t whole_ns = view->whole ? sums->all_ns : sums->shown_ns;
	unsigned int lacks = view->whole ? sums->all_lacks : sums->shown_lacks;

	if (!is_known(sums, c, e, sum, lacks, view->measured(e->host_pid))) {
		put_number(out, c->width, false, 0);
		return;
	}
	switch (c->what) {
	case PART:
		put_share(out, c->width, (double)top_part_ns(sum, c->part), whole_ns);
		break;
	case WAITS:
		put_share(out, c->width, (double)top_waits_ns(sum), whole_ns);
		break;
	case HIDDEN:
		put_hidden(out, c->width, sum, whole_ns);
		break;
	case REQUESTS:
		put_number(out, c->width, true,
			   whole_ns ? sum->requests * 1e9 / (double)whole_ns : 0);
		break;
	case BUSY:
		put_number(out, c->width, true, (double)e->busy);
		break;
	case WAITING:
		put_number(out, c->width, true, (double)e->waiting);
		break;
	case LAG:
		put_number(out, c->width, sum->lag_ns, (double)sum->lag_ns / 1e6);
		break;
	case THREADS:
		put_number(out, c->width, true, e->threads);
		break;
	}
}

void top_view_head(const struct top_view *view, size_t columns, char line[TOP_LINE_BYTES])
{
	static const char *const names[] = { "NAME", "THREAD", "LINE" };
	bool shown[ARRAY_SIZE(columns_of)];
	size_t room = fit(view, columns, shown);
	FILE *out = fmemopen(line, TOP_LINE_BYTES, "w");

	line[0] = 0;
	if (!out)
		return;
	fprintf(out, "%*s ", PID_WIDTH, view->processes ? "PIDS" : "PID");
	put_name(out, names[view->level], room);
	for (size_t i = 0; i < ARRAY_SIZE(columns_of); i++) {
		if (shown[i])
			fprintf(out, "%*s", (int)columns_of[i].width, columns_of[i].head);
	}
	fclose(out);
}

/* "gunicorn (shop)" */
static const char *name_of(const struct top_entry *e, char *buf, size_t size)
{
	if (e->level != TOP_PROCESSES || !*e->service || !strcmp(e->service, e->name))
		return e->name;
	snprintf(buf, size, "%s (%s)", e->service, e->name);
	return buf;
}

/* "12345 ", "3 x ": of a group the number of its processes. */
static void put_pid(FILE *out, const struct top_view *view, const struct top_entry *e)
{
	if (view->processes)
		fprintf(out, "%*u x ", PID_WIDTH - 2, view->processes(e->host_pid));
	else
		fprintf(out, "%*u ", PID_WIDTH, e->host_pid);
}

static void put_line(const struct top_sums *sums, const struct top_view *view,
		     const struct top_entry *e, const char *name, size_t columns,
		     char line[TOP_LINE_BYTES])
{
	bool shown[ARRAY_SIZE(columns_of)];
	size_t room = fit(view, columns, shown);
	FILE *out = fmemopen(line, TOP_LINE_BYTES, "w");

	line[0] = 0;
	if (!out)
		return;
	put_pid(out, view, e);
	put_name(out, name, room);
	for (size_t i = 0; i < ARRAY_SIZE(columns_of); i++) {
		if (shown[i])
			put_cell(out, sums, view, &columns_of[i], e);
	}
	fclose(out);
}

void top_view_line(const struct top_sums *sums, const struct top_view *view,
		   const struct top_entry *e, size_t columns, char line[TOP_LINE_BYTES])
{
	char name[600];

	put_line(sums, view, e, name_of(e, name, sizeof(name)), columns, line);
}

void top_view_before(const struct top_view *view, const struct top_entry *e, size_t columns,
		     char line[TOP_LINE_BYTES])
{
	struct top_view of = *view;

	of.measured = view->measured_before;
	of.processes = view->processes_before;
	line[0] = 0;
	if (e->earlier)
		put_line(view->before, &of, e->earlier, "  before", columns, line);
}

void top_view_lacks(const struct top_sums *sums, const struct top_view *view,
		    char line[TOP_LINE_BYTES])
{
	unsigned int lacks = view->whole ? sums->all_lacks : sums->shown_lacks;
	size_t n = 0;

	line[0] = 0;
	for (size_t i = 0; i < TOP_SOURCES; i++) {
		if (lacks & top_trackers[i].source)
			n += (size_t)snprintf(
				line + n, TOP_LINE_BYTES - n, "%s%s",
				n ? ", " : "not measured all the time (-): ", top_trackers[i].name);
	}
}
