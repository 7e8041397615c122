// SPDX-License-Identifier: Apache-2.0
/* The timeline of a window. See stored.h. */
#include "commands/timeline/stored.h"

#include "commands/requests/report.h"
#include "commands/window.h"

struct reader {
	struct window *window;
	struct timeline *timeline;
	json_t *report;
	double measured_s;
};

static int read_kind(struct reader *r, const struct timeline_kind *kind, struct why *why)
{
	char path[64], table[64], limit[16];
	const struct clickhouse_param params[] = { { "param_limit", limit }, { 0 } };
	json_t *rows = NULL;
	const json_t *row;
	size_t i;
	int err;

	snprintf(path, sizeof(path), "timeline/%s.sql", kind->name);
	snprintf(limit, sizeof(limit), "%d", TIMELINE_ROWS_MAX + 1);
	snprintf(table, sizeof(table), "ebpf_%s", kind->name);
	r->window->table = table; /* in errors */
	err = window_ask(r->window, path, params, &rows, why);
	r->window->table = "ebpf_agent";
	json_array_foreach (rows, i, row) {
		if (i < TIMELINE_ROWS_MAX)
			timeline_add(r->timeline, kind, row);
	}
	if (json_array_size(rows) > TIMELINE_ROWS_MAX)
		report_add_note(r->report, "%s: only the %d longest", kind->events,
				TIMELINE_ROWS_MAX);
	json_decref(rows);
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
		report_add_note(r->report, "not measured: %s", kind->events);
	if (measured_s > r->measured_s)
		r->measured_s = measured_s;
	json_decref(coverage);
	return err;
}

static int check(struct reader *r, struct why *why)
{
	const struct timeline *t = r->timeline;

	if (t->err)
		return why_fail(why, ENOMEM, "out of memory");
	if (*t->other_host)
		return why_fail(why, EINVAL,
				"host: rows of several hosts, as %s and %s: a timeline is of one: "
				"give --host",
				t->host, t->other_host);
	if (t->n)
		return 0;
	if (r->measured_s <= 0)
		return why_fail(why, ENODATA,
				"nothing was measured: no agent reported in that time; see "
				"`underspan doctor` on the host");
	return window_check_known(r->window, "", why);
}

int timeline_stored(const struct pid_list *pids, struct timeline *ret, json_t **ret_report,
		    struct why *why)
{
	struct window window;
	int err = window_open(&window, "ebpf_agent", pids, why);
	struct reader r = { .window = &window, .timeline = ret };

	*ret_report = r.report = window_report(&window, pids);
	for (size_t i = 0; i < TIMELINE_KINDS && !err; i++) {
		err = read_coverage(&r, &timeline_kinds[i], why);
		if (!err)
			err = read_kind(&r, &timeline_kinds[i], why);
	}
	if (!err)
		err = check(&r, why);
	json_object_set_new(r.report, "measured_s", json_real(r.measured_s));
	window_close(&window);
	return err;
}
