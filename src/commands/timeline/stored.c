// SPDX-License-Identifier: Apache-2.0
/* The timeline of a window. See stored.h. */
#include "commands/timeline/stored.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/report.h"
#include "commands/timeline/limit.h"
#include "commands/window.h"

struct reader {
	struct window *window;
	struct timeline *timeline;
	json_t *report;
	const char *of; /* "", "before: " */
	double measured_s;
};

/* "[(tid,begin_us,end_us),..]". Heap. */
static char *slow_text(const struct timeline *t)
{
	struct timeline_slow *times;
	size_t n = timeline_slow_times(t, &times), size;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	if (out) {
		for (size_t i = 0; i < n; i++)
			fprintf(out, "%c(%u,%llu,%llu)", i ? ',' : '[', times[i].host_tid,
				(unsigned long long)(times[i].begin_ns / NSEC_PER_USEC),
				(unsigned long long)(times[i].end_ns / NSEC_PER_USEC));
		fputs(n ? "]" : "[]", out);
		fclose(out);
	}
	free(times);
	return text;
}

/* Half of the rows where the answer has more bytes than the client takes. */
static int ask_rows(struct reader *r, const struct timeline_kind *kind, json_t **ret_rows,
		    struct why *why)
{
	AUTO_FREE char *slow = slow_text(r->timeline);
	char path[64], limit[16];
	const struct clickhouse_param params[] = { { "param_limit", limit },
						   { "param_slow", slow ?: "[]" },
						   { 0 } };
	int err = -EFBIG;

	snprintf(path, sizeof(path), "timeline/%s.sql", kind->name);
	for (int most = TIMELINE_ROWS_MAX; err == -EFBIG && most; most /= 2) {
		snprintf(limit, sizeof(limit), "%d", most);
		err = window_ask(r->window, path, params, ret_rows, why);
	}
	return err;
}

/* What the window has beyond the slices. */
static int count_left_out(struct reader *r, uint8_t kind, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_table", r->window->table }, { 0 } };
	struct timeline *t = r->timeline;
	json_t *rows = NULL;
	const json_t *row;
	int err = window_ask(r->window, "timeline/all_rows.sql", params, &rows, why);

	row = json_array_get(rows, 0);
	if (!err && report_number(row, "row_count") > (double)t->n_of[kind]) {
		t->left_out[kind].rows = (uint64_t)report_number(row, "row_count") - t->n_of[kind];
		t->left_out[kind].ns = (uint64_t)report_number(row, "all_ns") -
				       timeline_kind_ns(t, kind);
	}
	json_decref(rows);
	return err;
}

static int read_kind(struct reader *r, uint8_t i, struct why *why)
{
	const struct timeline_kind *kind = &timeline_kinds[i];
	char table[64];
	json_t *rows = NULL;
	const json_t *row;
	size_t n;
	int err;

	snprintf(table, sizeof(table), "ebpf_%s", kind->name);
	r->window->table = table; /* in errors */
	err = ask_rows(r, kind, &rows, why);
	if (err == -ENOENT && !strcmp(kind->name, "on_cpu"))
		err = 0; /* tables of an agent without it, which then lacks in the coverage */
	json_array_foreach (rows, n, row)
		timeline_add(r->timeline, kind, row);
	json_decref(rows);
	if (!err && n)
		err = count_left_out(r, i, why);
	r->window->table = "ebpf_agent";
	return err;
}

/* An empty track is no statement where nothing was measured. */
static int read_coverage(struct reader *r, const struct timeline_kind *kind, struct why *why)
{
	json_t *coverage = NULL;
	double measured_s;
	int err = window_coverage(r->window, kind->name, kind->events, r->report, &coverage,
				  &measured_s, why);

	if (!err && measured_s <= 0)
		report_add_note(r->report, "%snot measured: %s", r->of, kind->events);
	if (measured_s > r->measured_s)
		r->measured_s = measured_s;
	json_decref(coverage);
	return err;
}

static int check_hosts(const char *a, const char *b, struct why *why)
{
	if (!*a || !*b || !strcmp(a, b))
		return 0;
	return why_fail(why, EINVAL,
			"host: rows of several hosts, as %s and %s: a timeline is of one: give "
			"--host",
			a, b);
}

/* Sums of waits are there also where every event was too short for a row. */
static int note_services(struct reader *r, struct why *why)
{
	int err;

	r->window->table = "ebpf_off_cpu_profile";
	err = window_note_empty(r->window, r->report, why);
	r->window->table = "ebpf_agent";
	return err;
}

static int check(struct reader *r, struct why *why)
{
	const struct timeline *t = r->timeline;
	int err = t->err ? why_fail(why, ENOMEM, "out of memory") : 0;

	if (!err)
		err = check_hosts(t->host, t->other_host, why);
	if (err || t->n || *r->of)
		return err;
	if (r->measured_s <= 0)
		return window_not_measured(r->window, r->report, "", why);
	err = window_check_known(r->window, "", why);
	return err ?: note_services(r, why);
}

struct reading {
	struct reader reader;
	struct timeline *timeline, *before;
};

static int read_window(void *context, json_t *report, json_t *times, struct why *why)
{
	struct reading *reading = context;
	struct reader *r = &reading->reader;
	int err = 0;

	r->timeline = times == report ? reading->timeline : reading->before;
	r->of = times == report ? "" : "before: ";
	r->measured_s = 0;
	for (size_t i = 0; i < TIMELINE_KINDS && !err; i++) {
		err = read_coverage(r, &timeline_kinds[i], why);
		if (!err)
			err = read_kind(r, (uint8_t)i, why);
	}
	if (!err)
		err = check(r, why);
	timeline_add_notes(r->timeline, r->of, report);
	json_object_set_new(times, "measured_s", json_real(r->measured_s));
	return err;
}

int timeline_stored(const struct pid_list *pids, struct timeline *ret, struct timeline *ret_before,
		    json_t **ret_report, struct why *why)
{
	struct window window;
	int err = window_open(&window, "ebpf_agent", pids, why);
	struct reading reading = { { .window = &window }, ret, ret_before };

	*ret_report = reading.reader.report = window_report(&window, pids);
	if (!err)
		err = window_read_both(&window, *ret_report, read_window, &reading, why);
	if (!err)
		err = check_hosts(ret->host, ret_before->host, why);
	window_close(&window);
	return err;
}
