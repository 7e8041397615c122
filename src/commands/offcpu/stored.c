// SPDX-License-Identifier: Apache-2.0
/* Off-CPU stacks of a database. See stored.h. */
#include "commands/offcpu/stored.h"

#include <string.h>

#include "commands/offcpu/locks_stored.h"
#include "commands/offcpu/stack_text.h"
#include "commands/report.h"
#include "commands/window.h"

enum { FRAMES_MAX = 1024, CAUSES_MAX = 32 };

/* Bytes of stacks in an answer; the client's limit is 64 MiB. */
static const char answer_bytes[] = "40000000";

/* As in an HTML report. */
static const char smaller_stacks[] = "(smaller stacks)";

/* A row of sql/offcpu/stacks.sql as a row of the profile. */
struct stored_row {
	const char *thread_name, *cause, *syscall, *waker_thread_name;
	struct column_strings user_stack, py_stack, waker_stack;
	uint32_t waker_host_tid;
	uint8_t idle;
};

static const struct column columns[] = {
#define STORED(kind, member) COLUMN(kind, struct stored_row, member, #member, "")
	STORED(COLUMN_STRING, thread_name),	  STORED(COLUMN_STRING, cause),
	STORED(COLUMN_STRING, syscall),		  STORED(COLUMN_U8, idle),
	STORED(COLUMN_STRINGS, user_stack),	  STORED(COLUMN_STRINGS, py_stack),
	STORED(COLUMN_STRINGS, waker_stack),	  STORED(COLUMN_U32, waker_host_tid),
	STORED(COLUMN_STRING, waker_thread_name),
#undef STORED
};
static const struct table stored_table = { .name = "stored",
					   .columns = { columns },
					   .n_columns = { ARRAY_SIZE(columns) } };

/* Time by cause, without what is listed by thread. */
struct cause_rest {
	char cause[32];
	double off_ns;
};

struct reader {
	struct window *window;
	struct folded *folded;
	const struct stack_text_options *options;
	bool apart, with_services, with_cpu;
	bool with_samples; /* of the window being read, if asked for: measured */
	struct stack_columns columns;
	const struct column *cause;
	struct buffer text;
	struct cause_rest rests[CAUSES_MAX];
	size_t n_rests;
};

/* ---- stacks ---- */

/* "MainThread", "MainThread (checkout)", "MainThread (web-1, pid 12)". */
static void name_thread(const struct reader *r, const json_t *row, char *buf, size_t size)
{
	const char *name = report_text(row, "thread_name"), *service = report_text(row, "service");
	const char *host = report_text(row, "process");

	if (r->apart)
		snprintf(buf, size, "%s (%s%spid %.0f)", name, host, *host ? ", " : "",
			 report_number(row, "host_pid"));
	else if (r->with_services)
		snprintf(buf, size, "%s (%s)", name, *service ? service : "no service");
	else
		snprintf(buf, size, "%s", name);
}

static int add_ns(struct reader *r, const char *text, double ns)
{
	struct folded_stack *stack = folded_get(r->folded, text, strlen(text));

	if (!stack)
		return -ENOMEM;
	stack->ns += (uint64_t)ns;
	return 0;
}

static void take_from_rest(struct reader *r, const char *cause, double ns)
{
	for (size_t i = 0; i < r->n_rests; i++) {
		if (!strcmp(r->rests[i].cause, cause))
			r->rests[i].off_ns -= ns;
	}
}

/* What the stacks of a thread and cause beyond the limit sum up to. */
static int add_smaller(struct reader *r, const struct stored_row *of, double ns)
{
	char cause[64];
	int err;

	snprintf(cause, sizeof(cause), "[%.16s%s]", of->cause, of->idle ? ", idle" : "");
	r->text.len = 0;
	err = folded_frame(&r->text, of->thread_name) ?: folded_frame(&r->text, smaller_stacks);
	if (!err)
		err = folded_frame(&r->text, cause) ?: buffer_append(&r->text, "", 1);
	return err ? err : add_ns(r, r->text.data, ns);
}

static int add_stack(struct reader *r, const json_t *row)
{
	static const char *native[FRAMES_MAX], *python[FRAMES_MAX], *waker[FRAMES_MAX];
	char name[512], no_room[64];
	struct stored_row stored = {
		.thread_name = name,
		.cause = report_text(row, "cause"),
		.syscall = report_text(row, "syscall"),
		.waker_thread_name = report_text(row, "waker_thread_name"),
		.user_stack = report_strings(row, "native", native, FRAMES_MAX),
		.py_stack = report_strings(row, "py_stack", python, FRAMES_MAX),
		.waker_stack = report_strings(row, "waker_stack", waker, FRAMES_MAX),
		.waker_host_tid = (uint32_t)report_number(row, "waker_host_tid"),
		.idle = (uint8_t)report_number(row, "idle"),
	};
	double ns = report_number(row, "off_ns");

	take_from_rest(r, stored.cause, ns);
	r->columns.cause = strcmp(stored.cause, "cpu") != 0 ? r->cause : NULL;
	if (!report_number(row, "host_pid")) {
		snprintf(no_room, sizeof(no_room), "[found no room in the kernel];[%.16s]",
			 stored.cause);
		return add_ns(r, no_room, ns);
	}
	name_thread(r, row, name, sizeof(name));
	if (report_number(row, "smaller"))
		return add_smaller(r, &stored, ns);
	if (stack_text_make(&r->text, r->options, &r->columns, &stored, false))
		return -ENOMEM;
	return add_ns(r, r->text.data, ns);
}

static bool has_services(const json_t *rows)
{
	const char *first = NULL;
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		const char *service = report_text(row, "service");

		if (!report_number(row, "host_pid"))
			continue;
		if (first && strcmp(first, service) != 0)
			return true;
		first = service;
	}
	return false;
}

static int add_rests(struct reader *r)
{
	char text[64];
	int err = 0;

	for (size_t i = 0; i < r->n_rests && !err; i++) {
		snprintf(text, sizeof(text), "%s;[%.16s]", smaller_stacks, r->rests[i].cause);
		if (r->rests[i].off_ns >= 1)
			err = add_ns(r, text, r->rests[i].off_ns);
	}
	return err;
}

static int add_stacks(struct reader *r, struct why *why)
{
	const struct clickhouse_param params[] = {
		{ "param_apart", r->apart ? "1" : "0" },
		{ "param_wakers", r->options->with_wakers ? "1" : "0" },
		{ "param_mixed", r->options->with_native ? "1" : "0" },
		{ "param_bytes", answer_bytes },
		{ 0 }
	};
	json_t *rows = NULL, *samples = NULL, *row;
	size_t i;
	int err = window_ask(r->window, "offcpu/stacks.sql", params, &rows, why);

	if (!err && r->with_samples)
		err = window_ask(r->window, "offcpu/cpu.sql", params, &samples, why);
	if (err) {
		json_decref(rows);
		return err;
	}
	json_array_extend(rows, samples);
	json_decref(samples);
	r->with_services = !r->apart && has_services(rows);
	json_array_foreach (rows, i, row)
		err = err ? err : add_stack(r, row);
	if (!err)
		err = add_rests(r);
	json_decref(rows);
	return err ? why_fail(why, ENOMEM, "out of memory") : 0;
}

/* ---- totals ---- */

/* Sets begin_us and end_us; returns the number of rows. */
static double add_totals(struct reader *r, const json_t *totals, json_t *times)
{
	double begin = 0, end = 0, rows = 0;
	const json_t *row;
	size_t i;

	r->n_rests = 0;
	json_array_foreach (totals, i, row) {
		double from = report_number(row, "begin_us"), to = report_number(row, "end_us");
		struct cause_rest *rest = &r->rests[r->n_rests];

		begin = !rows || from < begin ? from : begin;
		end = to > end ? to : end;
		rows += report_number(row, "row_count");
		if (r->n_rests == CAUSES_MAX)
			continue;
		snprintf(rest->cause, sizeof(rest->cause), "%.31s", report_text(row, "cause"));
		rest->off_ns = report_number(row, "off_ns");
		for (size_t k = 0; k < r->n_rests; k++) { /* found no room: the same cause */
			if (strcmp(r->rests[k].cause, rest->cause) != 0)
				continue;
			r->rests[k].off_ns += rest->off_ns;
			rest = NULL;
			break;
		}
		r->n_rests += rest != NULL;
	}
	json_object_set_new(times, "begin_us",
			    rows ? json_integer((json_int_t)begin) : json_null());
	json_object_set_new(times, "end_us", rows ? json_integer((json_int_t)end) : json_null());
	return rows;
}

static void move_to_before(struct folded *folded)
{
	for (struct folded_stack *s = folded->stacks; s; s = s->hh.next) {
		s->before = s->value;
		s->value = s->ns = 0;
	}
}

/* The sums remain an answer without the rows, as in a database with older tables. */
static void add_locks(struct reader *r, json_t *report)
{
	json_t *by_lock = NULL;
	struct why why = { 0 };

	if (locks_stored(r->window, &by_lock, &why))
		report_add_note(report, "waits by lock are not known: %s", why.text);
	else
		json_object_set_new(report, "by_lock", by_lock);
}

/* Time on a CPU that was not measured is no absence of such time: cpu_us is null then. */
static int check_samples(struct reader *r, json_t *report, json_t *times, struct why *why)
{
	json_t *coverage = NULL;
	double measured_s;
	int err = window_coverage(r->window, "on_cpu", "samples", report, &coverage, &measured_s,
				  why);

	r->with_samples = !err && measured_s > 0;
	if (!err && !r->with_samples) {
		json_object_set_new(times, "cpu_us", json_null());
		report_add_note(report, "time on a CPU was not measured: no agent with the tracker "
					"`on_cpu` reported in that time");
	}
	json_decref(coverage);
	return err;
}

/* The stacks of the window, and `times` of the window. */
static int read_window(void *context, json_t *report, json_t *times, struct why *why)
{
	struct reader *r = context;
	json_t *coverage = NULL, *totals = NULL;
	double measured_s, rows = 0;
	int err = window_coverage(r->window, "off_cpu_profile", "waits", report, &coverage,
				  &measured_s, why);

	if (!err)
		err = window_ask(r->window, "offcpu/totals.sql", NULL, &totals, why);
	if (!err)
		rows = add_totals(r, totals, times);
	if (!err && !rows && measured_s <= 0)
		err = window_not_measured(r->window, report, "off_cpu", why);
	if (!err && !rows)
		err = window_check_known(r->window, "", why);
	if (!err && !rows && times == report)
		err = window_note_empty(r->window, report, why);
	if (!err && r->with_cpu)
		err = check_samples(r, report, times, why);
	if (!err && (rows || r->with_samples))
		err = add_stacks(r, why);
	if (!err && rows && times == report)
		add_locks(r, report);
	json_object_set_new(times, "measured_s", json_real(measured_s));
	json_object_set_new(times, "coverage", coverage ?: json_array());
	json_decref(totals);
	folded_round(r->folded);
	if (times != report)
		move_to_before(r->folded);
	return err;
}

int offcpu_stored(const struct pid_list *pids, struct offcpu_choice choice, struct folded *ret,
		  json_t **ret_report, struct why *why)
{
	const struct stack_text_options options = { .with_wakers = choice.wakers,
						    .with_native = choice.native };
	struct window window;
	struct reader r = { .window = &window,
			    .folded = ret,
			    .options = &options,
			    .apart = pids->n > 1,
			    .with_cpu = choice.cpu };
	int err = window_open(&window, "ebpf_off_cpu_profile", pids, why);

	*ret_report = window_report(&window, pids);
	stack_columns_find(&stored_table, &r.columns);
	r.cause = r.columns.cause;
	if (!err)
		err = window_read_both(&window, *ret_report, read_window, &r, why);
	if (!err)
		window_note_lengths(*ret_report);
	window_close(&window);
	buffer_free(&r.text);
	return err;
}
