// SPDX-License-Identifier: Apache-2.0
/* The sums of a window. See stored.h. */
#include "commands/top/stored.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "commands/requests/report.h"
#include "commands/window.h"

/* As in the queries. */
enum { SUMS_MAX = 100000 };

/* A source that measured for a smaller share of the time lacks. */
static const double MEASURED_SHARE = 0.98;

struct reader {
	struct window *window;
	struct top_sums *sums;
	json_t *report;
	char host[256];	      /* of the first row */
	char other_host[256]; /* "": all rows are of one host */
};

static json_t *measured; /* rows of sql/top/measured.sql */

void top_stored_free(void)
{
	json_decref(measured);
	measured = NULL;
}

bool top_stored_measured(uint32_t host_pid)
{
	const json_t *row;
	size_t i;

	json_array_foreach (measured, i, row) {
		if ((uint32_t)report_number(row, "host_pid") == host_pid)
			return report_number(row, "measured") > 0;
	}
	return false;
}

/* ---- entries ---- */

static struct top_entry *process_of(struct reader *r, const json_t *row)
{
	const char *host = report_text(row, "host"), *service = report_text(row, "service");
	struct top_entry *e = top_sums_entry(r->sums, TOP_PROCESSES,
					     (uint32_t)report_number(row, "host_pid"),
					     report_text(row, "comm"));

	if (!*r->host)
		snprintf(r->host, sizeof(r->host), "%s", host);
	else if (strcmp(r->host, host) != 0)
		snprintf(r->other_host, sizeof(r->other_host), "%s", host);
	if (e && *service)
		text_printable(e->service, sizeof(e->service), service);
	return e;
}

/* The entries of a row of a thread; NULL: no place. */
static void entries_of(struct reader *r, const json_t *row, struct top_entry *ret[TOP_LEVELS])
{
	uint32_t host_pid = (uint32_t)report_number(row, "host_pid");
	uint32_t host_tid = (uint32_t)report_number(row, "host_tid");
	char name[300];

	ret[TOP_PROCESSES] = process_of(r, row);
	snprintf(name, sizeof(name), "%.255s", report_text(row, "thread_name"));
	if (!*name)
		snprintf(name, sizeof(name), "%.63s (%u)", report_text(row, "comm"), host_tid);
	ret[TOP_THREADS] = top_sums_thread(r->sums, host_pid, host_tid, name);
	ret[TOP_LINES] = top_sums_entry(r->sums, TOP_LINES, host_pid, report_text(row, "line"));
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

static void add_requests(struct reader *r, const json_t *row)
{
	struct top_entry *e = process_of(r, row);
	char column[48];

	if (!e)
		return;
	e->has_requests = true;
	e->all.requests += report_number(row, "requests");
	e->busy = e->busy_max = (int64_t)report_number(row, "busy_max");
	if (report_has(row, "waiting_max"))
		e->waiting = e->waiting_max = (int64_t)report_number(row, "waiting_max");
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
};

static int ask(struct reader *r, const struct question *q, struct why *why)
{
	json_t *rows = NULL;
	const json_t *row;
	size_t i;
	int err = window_ask(r->window, q->path, NULL, &rows, why);

	json_array_foreach (rows, i, row)
		q->add(r, row);
	if (i == SUMS_MAX)
		report_add_note(r->report, "%s: only the %d largest sums", q->events, SUMS_MAX);
	json_decref(rows);
	return err;
}

static int read_coverage(struct reader *r, struct why *why)
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
	r->sums->all_lacks |= TOP_OF_HOST;
	r->sums->all_ns = (uint64_t)(longest_s * 1e9);
	json_object_set_new(r->report, "measured_s", json_real(longest_s));
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
	if (r->sums->entries)
		return 0;
	if (!r->sums->all_ns)
		return why_fail(why, ENODATA,
				"nothing was measured: no agent reported in that time; see "
				"`underspan doctor` on the host");
	return window_check_known(r->window, "", why);
}

static int read_all(struct reader *r, struct why *why)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(questions) && !err; i++)
		err = ask(r, &questions[i], why);
	if (!err)
		err = check_host(r, why);
	if (err)
		return err;
	if (*r->host)
		r->window->host = r->host;
	err = read_coverage(r, why);
	if (!err)
		err = check_measured(r, why);
	if (!err)
		err = window_ask(r->window, "top/measured.sql", NULL, &measured, why);
	r->window->host = window_choice.host;
	return err;
}

int top_stored(const struct pid_list *pids, struct top_sums *ret, json_t **ret_report,
	       struct why *why)
{
	struct window window;
	int err = window_open(&window, "ebpf_off_cpu_profile", pids, why);
	struct reader r = { .window = &window, .sums = ret };

	*ret_report = r.report = window_report(&window, pids);
	if (!err)
		err = read_all(&r, why);
	window_close(&window);
	return err;
}
