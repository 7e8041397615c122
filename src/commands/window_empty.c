// SPDX-License-Identifier: Apache-2.0
/* What is said of a window without rows. See window.h. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "commands/report.h"
#include "commands/window.h"

/* "a, b, c" of rows with a name; the sinks of the text make it printable. */
static void list_names(char *list, size_t size, const json_t *rows)
{
	size_t i, at = 0;
	json_t *row;

	*list = 0;
	json_array_foreach (rows, i, row) {
		if (at < size)
			at += (size_t)snprintf(list + at, size - at, "%s%.100s", i ? ", " : "",
					       report_text(row, "name"));
	}
}

/* -ENODATA if the host asked for has no report, perhaps by a typing error, and others have. */
static int check_host(struct window *w, struct why *why)
{
	json_t *rows = NULL;
	struct why ignored;
	char list[1200];
	int err = 0;

	if (!w->host || window_ask(w, "window/hosts.sql", NULL, &rows, &ignored))
		return 0;
	list_names(list, sizeof(list), rows);
	if (*list && !report_number(json_array_get(rows, 0), "asked"))
		err = why_fail(why, ENODATA,
			       "nothing was measured: no agent of host %.200s reported in that "
			       "time; the hosts of that time: %s",
			       w->host, list);
	json_decref(rows);
	return err;
}

int window_not_measured(struct window *w, const json_t *report, const char *tracker,
			struct why *why)
{
	const json_t *note = json_array_get(json_object_get(report, "notes"), 0);
	int err = check_host(w, why);

	if (err)
		return err;
	if (!*tracker)
		return why_fail(why, ENODATA,
				"nothing was measured: no agent reported in that time; see "
				"`underspan doctor` on the host");
	return why_fail(why, ENODATA,
			"nothing was measured: no agent with the tracker `%s` reported in that "
			"time%s%s",
			tracker, note ? "; " : "; see `underspan doctor` on the host",
			note ? json_string_value(note) : "");
}

int window_check_known(struct window *w, const char *tracker, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_tracker", tracker }, { 0 } };
	json_t *rows = NULL;
	double known;
	int err;

	if (!strcmp(w->pids, "[]"))
		return 0;
	err = window_ask(w, "window/known.sql", params, &rows, why);
	known = report_number(json_array_get(rows, 0), "known");
	json_decref(rows);
	if (err || known > 0)
		return err;
	return why_fail(why, ENODATA,
			"nothing was measured: no agent watched a process of %s in that time; see "
			"`underspan doctor` on the host",
			w->pids);
}

/* Whether the service has sums of waits, as each service with threads that run. */
static bool is_watched(struct window *w)
{
	static const char sums[] = "ebpf_off_cpu_profile";
	const struct clickhouse_param params[] = { { "param_table", sums }, { 0 } };
	json_t *rows = NULL;
	struct why ignored;
	bool found;

	if (!strcmp(w->table, sums) ||
	    window_ask(w, "window/services.sql", params, &rows, &ignored))
		return false;
	found = !strcmp(report_text(json_array_get(rows, 0), "name"), w->service);
	json_decref(rows);
	return found;
}

int window_note_empty(struct window *w, json_t *report, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_table", w->table }, { 0 } };
	char list[1024];
	json_t *rows = NULL;
	int err;

	if (strcmp(w->pids, "[]"))
		report_add_note(report,
				"a pid chooses that process alone here, without its children: give "
				"the pids of a master's workers, or --service=NAME");
	if (!w->service)
		return 0;
	if (is_watched(w)) {
		report_add_note(report,
				"service %.200s was watched in that time, and has no row of %s",
				w->service, w->table);
		return 0;
	}
	err = window_ask(w, "window/services.sql", params, &rows, why);
	list_names(list, sizeof(list), rows);
	if (!err)
		report_add_note(report,
				"no row is of service %.200s; the services of that time: %s",
				w->service, *list ? list : "none");
	json_decref(rows);
	return err;
}
