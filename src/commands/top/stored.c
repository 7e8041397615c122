// SPDX-License-Identifier: Apache-2.0
/* The sums of a window. See stored.h. */
#include "commands/top/stored.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "commands/report.h"
#include "commands/top/names.h"
#include "commands/window.h"

/* As in the queries. */
enum { SUMS_MAX = 100000 };

/* A source that measured for a smaller share of the time lacks. */
static const double MEASURED_SHARE = 0.98;

/* Processes of the windows. */
static struct top_names now, before;
static struct top_groups groups;

void top_stored_free(void)
{
	top_names_free(&now);
	top_names_free(&before);
	top_groups_free(&groups);
}

/* 0 also for a number without processes. */
static unsigned int all_measured(struct top_names *names, uint32_t number)
{
	unsigned int measured = ~0U;
	bool any = false;

	for (struct top_name *n = names->items; n; n = n->hh.next) {
		if (top_names_number(names, n) != number)
			continue;
		measured &= n->measured;
		any = true;
	}
	return any ? measured : 0;
}

unsigned int top_stored_measured(uint32_t number)
{
	return all_measured(&now, number);
}

unsigned int top_stored_measured_before(uint32_t number)
{
	return all_measured(&before, number);
}

uint32_t top_stored_processes(uint32_t number)
{
	return top_names_count(&now, number);
}

uint32_t top_stored_processes_before(uint32_t number)
{
	return top_names_count(&before, number);
}

/* ---- rows ---- */

struct reader {
	struct window *window;
	struct top_names *of;
	struct top_sums *sums;
	json_t *report;
	char host[256];	      /* of the first row */
	char other_host[256]; /* "": all rows are of one host */
};

/* ---- entries ---- */

static void note_host(struct reader *r, const char *host)
{
	if (!*r->host)
		snprintf(r->host, sizeof(r->host), "%s", host);
	else if (strcmp(r->host, host) != 0)
		snprintf(r->other_host, sizeof(r->other_host), "%s", host);
}

/* Also of a row without a place: *ret_number. */
static struct top_entry *process_of(struct reader *r, const json_t *row, uint32_t *ret_number)
{
	struct top_name *name = top_names_note(r->of, row);
	struct top_entry *e;

	*ret_number = name ? top_names_number(r->of, name) : 0;
	if (!name)
		return NULL;
	e = top_sums_entry(r->sums, TOP_PROCESSES, *ret_number, name->comm);
	if (e && *name->service)
		text_printable(e->service, sizeof(e->service), name->service);
	return e;
}

/* The entries of a row of a thread; NULL: no place. */
static void entries_of(struct reader *r, const json_t *row, struct top_entry *ret[TOP_LEVELS])
{
	uint32_t number, host_tid = (uint32_t)report_number(row, "host_tid");
	char name[300];

	ret[TOP_PROCESSES] = process_of(r, row, &number);
	snprintf(name, sizeof(name), "%.255s", report_text(row, "thread_name"));
	if (!*name)
		snprintf(name, sizeof(name), "%.63s (%u)", report_text(row, "comm"), host_tid);
	ret[TOP_THREADS] = top_sums_thread(r->sums, number, host_tid, name);
	ret[TOP_LINES] = top_sums_entry(r->sums, TOP_LINES, number, report_text(row, "line"));
}

static void add(struct top_entry *const entries[TOP_LEVELS], enum top_part part, double ns)
{
	for (int level = 0; level < TOP_LEVELS; level++) {
		if (entries[level])
			entries[level]->all.ns[part] += (uint64_t)ns;
	}
}

/* ---- rows ---- */

static void add_waits(struct reader *r, const json_t *row)
{
	double off_ns = report_number(row, "off_ns"), runq_ns = report_number(row, "runq_ns");
	struct top_entry *entries[TOP_LEVELS];

	entries_of(r, row, entries);
	add(entries, TOP_RUNQ, runq_ns);
	add(entries, report_number(row, "idle") ? TOP_IDLE : top_part_of(report_text(row, "cause")),
	    off_ns - runq_ns);
}

static void add_samples(struct reader *r, const json_t *row)
{
	struct top_entry *entries[TOP_LEVELS];

	entries_of(r, row, entries);
	add(entries, TOP_CPU, report_number(row, "cpu_ns"));
}

static void add_collections(struct reader *r, const json_t *row)
{
	struct top_entry *entries[TOP_LEVELS];

	entries_of(r, row, entries);
	add(entries, TOP_GC, report_number(row, "gc_ns"));
}

static void add_stalls(struct reader *r, const json_t *row)
{
	uint64_t ns = (uint64_t)report_number(row, "lag_ns");
	struct top_entry *entries[TOP_LEVELS];

	entries_of(r, row, entries);
	for (int level = 0; level < TOP_LEVELS; level++) {
		if (entries[level] && ns > entries[level]->all.lag_ns)
			entries[level]->all.lag_ns = ns;
	}
}

/* A holder without a wait of its own has no name here, and no line. */
static void add_holders(struct reader *r, const json_t *row)
{
	struct top_entry *e = top_sums_of_tid(r->sums, (uint32_t)report_number(row, "host_tid"));

	if (e)
		e->all.ns[TOP_HELD] += (uint64_t)report_number(row, "held_ns");
}

static bool names_part(const json_t *names, const char *part)
{
	const json_t *name;
	size_t i;

	json_array_foreach (names, i, name) {
		if (!strcmp(json_string_value(name) ?: "", part))
			return true;
	}
	return false;
}

/* A NULL is no value. */
static int64_t max_of(int64_t max, const json_t *row, const char *column)
{
	int64_t value = report_has(row, column) ? (int64_t)report_number(row, column) : -1;

	return value > max ? value : max;
}

static void add_requests(struct reader *r, const json_t *row)
{
	uint32_t number;
	struct top_entry *e = process_of(r, row, &number);
	char column[48];

	if (!e)
		return;
	e->has_requests = true;
	e->all.requests += report_number(row, "requests");
	e->busy = e->busy_max = max_of(e->busy_max, row, "busy_max");
	e->waiting = e->waiting_max = max_of(e->waiting_max, row, "waiting_max");
	for (int i = 0; i < REQUEST_PARTS; i++) {
		snprintf(column, sizeof(column), "%s_ns", request_parts[i].name);
		top_sum_add_part(&e->all, i, report_has(row, column), report_number(row, column),
				 names_part(json_object_get(row, "lacked"), request_parts[i].name));
	}
}

/* ---- questions ---- */

/* Waits first: threads get their names. */
static const struct question {
	const char *path;
	void (*add)(struct reader *r, const json_t *row);
	enum top_source source;
	const char *tracker, *events; /* of ebpf_agent */
} questions[] = {
	{ "top/waits.sql", add_waits, TOP_OF_OFF_CPU, "off_cpu_profile", "waits off the CPU" },
	{ "top/collections.sql", add_collections, TOP_OF_GC_PAUSE, "gc_pause", "collections" },
	{ "top/stalls.sql", add_stalls, TOP_OF_LOOP_STALL, "loop_stall", "stalls of event loops" },
	{ "top/holders.sql", add_holders, TOP_OF_GIL_WAIT, "gil_wait_profile",
	  "waits for the GIL" },
	{ "top/requests.sql", add_requests, TOP_OF_REQUEST, "request", "requests" },
	{ "top/samples.sql", add_samples, TOP_OF_ON_CPU, "on_cpu", "samples of the CPUs" },
};

static int ask(struct reader *r, const struct question *q, struct why *why)
{
	json_t *rows = NULL;
	const json_t *row;
	size_t i;
	int err = window_ask(r->window, q->path, NULL, &rows, why);

	if (err == -ENOENT && q->source == TOP_OF_ON_CPU)
		err = 0; /* tables of an agent without it, which then lacks in the coverage */
	json_array_foreach (rows, i, row) {
		note_host(r, report_text(row, "host"));
		if (*report_text(row, "comm"))
			top_names_note(r->of, row);
	}
	json_array_foreach (rows, i, row)
		q->add(r, row);
	if (i == SUMS_MAX)
		report_add_note(r->report, "%s: only the %d largest sums", q->events, SUMS_MAX);
	json_decref(rows);
	return err;
}

static int read_coverage(struct reader *r, json_t *times, struct why *why)
{
	double measured_s[ARRAY_SIZE(questions)] = { 0 }, longest_s = 0;
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(questions) && !err; i++) {
		json_t *coverage = NULL;

		err = window_coverage(r->window, questions[i].tracker, questions[i].events,
				      r->report, &coverage, &measured_s[i], why);
		longest_s = measured_s[i] > longest_s ? measured_s[i] : longest_s;
		json_decref(coverage);
	}
	for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
		if (measured_s[i] < MEASURED_SHARE * longest_s)
			r->sums->all_lacks |= questions[i].source;
	}
	r->sums->all_ns = (uint64_t)(longest_s * 1e9);
	json_object_set_new(times, "measured_s", json_real(longest_s));
	return err;
}

static int check_host(const struct reader *r, struct why *why)
{
	if (!*r->other_host)
		return 0;
	return why_fail(why, EINVAL,
			"host: rows of several hosts, as %s and %s: top is of one: give --host",
			r->host, r->other_host);
}

static int check_measured(const struct reader *r, struct why *why)
{
	int err;

	if (r->sums->entries)
		return 0;
	if (!r->sums->all_ns)
		return window_not_measured(r->window, r->report, "", why);
	err = window_check_known(r->window, "", why);
	return err ?: window_note_empty(r->window, r->report, why);
}

static int read_measured(struct reader *r, struct why *why)
{
	json_t *rows = NULL;
	const json_t *row;
	size_t i;
	int err = window_ask(r->window, "top/measured.sql", NULL, &rows, why);

	json_array_foreach (rows, i, row) {
		struct top_name *n = top_names_find(r->of,
						    (uint32_t)report_number(row, "host_pid"));

		if (n && report_number(row, "gil") > 0)
			n->measured |= TOP_OF_GIL_WAIT;
		if (n && report_number(row, "cpu") > 0)
			n->measured |= TOP_OF_ON_CPU;
	}
	json_decref(rows);
	return err;
}

/* Of one host: that of the first row. */
static int read_processes(struct reader *r, json_t *times, struct why *why)
{
	int err = read_coverage(r, times, why);

	if (!err && r->of == &now)
		err = check_measured(r, why);
	if (!err && r->of == &before && !r->sums->all_ns)
		report_add_note(r->report, "before: nothing was measured in that time");
	return err ?: read_measured(r, why);
}

struct reading {
	struct reader reader;
	struct top_sums *sums, *before;
};

static int read_window(void *context, json_t *report, json_t *times, struct why *why)
{
	struct reading *reading = context;
	struct reader *r = &reading->reader;
	bool earlier = times != report;
	int err = 0;

	r->sums = earlier ? reading->before : reading->sums;
	r->of = earlier ? &before : &now;
	for (size_t i = 0; i < ARRAY_SIZE(questions) && !err; i++)
		err = ask(r, &questions[i], why);
	if (!err)
		err = check_host(r, why);
	if (err)
		return err;
	if (*r->host)
		r->window->host = r->host;
	err = read_processes(r, times, why);
	r->window->host = window_choice.host;
	return err;
}

static struct top_entry *same_entry(struct top_sums *sums, const struct top_entry *of)
{
	struct top_entry *e = top_sums_entry(sums, of->level, of->host_pid, of->name);

	if (!e)
		return NULL;
	e->has_requests |= of->has_requests;
	if (!*e->service)
		snprintf(e->service, sizeof(e->service), "%s", of->service);
	return e;
}

/* Entries of one window are also of the other. */
static void join_windows(struct top_sums *sums, struct top_sums *earlier)
{
	for (struct top_entry *e = earlier->entries; e; e = e->hh.next) {
		struct top_entry *later = same_entry(sums, e);

		if (later)
			later->earlier = e;
	}
	for (struct top_entry *e = sums->entries; e; e = e->hh.next) {
		if (!e->earlier)
			e->earlier = same_entry(earlier, e);
	}
}

int top_stored(const struct pid_list *pids, struct top_sums *ret, struct top_sums *ret_before,
	       json_t **ret_report, struct why *why)
{
	bool compares = window_against.since_ns > 0;
	struct window window;
	int err = window_open(&window, "ebpf_off_cpu_profile", pids, why);
	struct reading reading = { { .window = &window }, ret, ret_before };

	now.groups = before.groups = compares ? &groups : NULL;
	*ret_report = reading.reader.report = window_report(&window, pids);
	if (!err)
		err = window_read_both(&window, *ret_report, read_window, &reading, why);
	if (!err && compares)
		join_windows(ret, ret_before);
	window_close(&window);
	return err;
}
