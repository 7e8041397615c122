// SPDX-License-Identifier: Apache-2.0
/* GIL waits of a database. See stored.h. */
#include "commands/gil/stored.h"

#include <string.h>

#include "base/text.h"
#include "commands/offcpu/frames.h"
#include "commands/report.h"
#include "commands/window.h"

struct reader {
	struct window *window;
	struct gil_totals *totals;
	struct frame_list names; /* each name is a thread */
	bool apart, with_services;
};

static bool several_services(const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		if (strcmp(report_text(row, "service"),
			   report_text(json_array_get(rows, 0), "service")) != 0)
			return true;
	}
	return false;
}

static struct gil_thread *thread_of(struct reader *r, const json_t *row)
{
	const char *name = report_text(row, "thread_name"), *service = report_text(row, "service");
	struct gil_thread *thread;
	char text[600], clean[600];

	if (r->apart)
		snprintf(text, sizeof(text), "%.250s (%.250s, pid %.0f)", name,
			 report_text(row, "process"), report_number(row, "process_pid"));
	else if (r->with_services)
		snprintf(text, sizeof(text), "%.250s (%.250s)", name,
			 *service ? service : "no service");
	else
		snprintf(text, sizeof(text), "%.250s", name);
	text_printable(clean, sizeof(clean), text);
	thread = gil_totals_thread(r->totals, 0, (uint32_t)frame_number_of_name(&r->names, clean));
	if (!thread || !thread->id.tid)
		return thread;
	snprintf(thread->name, sizeof(thread->name), "%.255s", clean);
	if (report_number(row, "threads") > (double)thread->threads)
		thread->threads = (uint64_t)report_number(row, "threads");
	if (!thread->host_tid) {
		thread->pid = (uint32_t)report_number(row, "pid");
		thread->host_tid = (uint32_t)report_number(row, "host_tid");
	}
	return thread;
}

static uint64_t uint_of(const json_t *row, const char *name)
{
	return (uint64_t)report_number(row, name);
}

static int add_waits(struct reader *r, const json_t *rows, bool before)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		struct gil_thread *t = thread_of(r, row);
		uint64_t ns = uint_of(row, "wait_ns"), max_ns = uint_of(row, "max_ns");

		if (!t || r->names.failed)
			return -ENOMEM;
		if (before) {
			t->before_ns += ns;
			r->totals->before_ns += ns;
			continue;
		}
		t->waits += uint_of(row, "waits");
		t->wait_ns += ns;
		t->runq_ns += uint_of(row, "runq_ns");
		t->forced_ns += uint_of(row, "forced_ns");
		t->max_ns = max_ns > t->max_ns ? max_ns : t->max_ns;
		r->totals->waits += uint_of(row, "waits");
		r->totals->wait_ns += ns;
	}
	return 0;
}

static int add_holders(struct reader *r, const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		struct gil_thread *t = thread_of(r, row);
		uint64_t ns = uint_of(row, "held_ns"), waits = uint_of(row, "waits");
		const char *line = report_text(row, "line");

		if (!t || r->names.failed)
			return -ENOMEM;
		t->held_ns += ns;
		t->held_waits += waits;
		if (*line && gil_thread_add_line(t, line, waits, ns))
			return -ENOMEM;
	}
	return 0;
}

static int ask(struct reader *r, const char *path, json_t **ret_rows, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_apart", r->apart ? "1" : "0" }, { 0 } };

	return window_ask(r->window, path, params, ret_rows, why);
}

static int read_holders(struct reader *r, json_t *report, struct why *why)
{
	json_t *holders = NULL, *sums = NULL;
	const json_t *sum;
	int err = ask(r, "gil/holders.sql", &holders, why);

	if (!err)
		err = ask(r, "gil/rows.sql", &sums, why);
	if (!err && add_holders(r, holders))
		err = why_fail(why, ENOMEM, "out of memory");
	sum = json_array_get(sums, 0);
	r->totals->rows = uint_of(sum, "row_count");
	r->totals->rows_ns = uint_of(sum, "rows_ns");
	r->totals->unheld_ns = uint_of(sum, "unheld_ns");
	json_object_set_new(report, "methods", json_string(report_text(sum, "methods")));
	json_decref(holders);
	json_decref(sums);
	return err;
}

/* Adds a window's waits, and its times to `times`. */
static int read_window(void *context, json_t *report, json_t *times, struct why *why)
{
	struct reader *r = context;
	json_t *coverage = NULL, *waits = NULL;
	double measured_s;
	int err = window_coverage(r->window, "gil_wait_profile", "waits", report, &coverage,
				  &measured_s, why);

	if (!err)
		err = ask(r, "gil/waits.sql", &waits, why);
	r->with_services = !r->apart && (r->with_services || several_services(waits));
	if (!err && !json_array_size(waits) && measured_s <= 0)
		err = window_not_measured(r->window, report, "gil_wait", why);
	if (!err && !json_array_size(waits))
		err = window_check_known(r->window, "gil_wait", why);
	if (!err && !json_array_size(waits) && times == report)
		err = window_note_empty(r->window, report, why);
	if (!err && add_waits(r, waits, times != report))
		err = why_fail(why, ENOMEM, "out of memory");
	json_object_set_new(times, "measured_s", json_real(measured_s));
	json_object_set_new(times, "coverage", coverage ?: json_array());
	json_decref(waits);
	return err;
}

int gil_stored(const struct pid_list *pids, struct gil_totals *ret, json_t **ret_report,
	       struct why *why)
{
	struct window window;
	struct reader r = { .window = &window, .totals = ret, .apart = pids->n > 1 };
	int err = window_open(&window, "ebpf_gil_wait_profile", pids, why);

	*ret_report = window_report(&window, pids);
	if (!err)
		err = window_read_both(&window, *ret_report, read_window, &r, why);
	if (!err)
		window_note_lengths(*ret_report);
	if (!err)
		err = read_holders(&r, *ret_report, why);
	window_close(&window);
	frame_list_free(&r.names);
	return err;
}
