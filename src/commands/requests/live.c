// SPDX-License-Identifier: Apache-2.0
/* Requests of some processes, live. See live.h. */
#include "commands/requests/live.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "commands/measure.h"
#include "commands/request_parts.h"
#include "commands/requests/totals.h"
#include "commands/watched.h"

static struct request_totals totals;
static struct measured measured;
static uint64_t begin_ns; /* the trackers run; rows may begin earlier */

int live_set_defaults(struct why *why)
{
	const struct option_table gil_wait[] = { measure_tracker_options("gil_wait"), { 0 } };
	int err = measure_govern_nothing(why);

	/* the parts need no rows of single waits */
	return err ? err : config_set_default(gil_wait, "gil_wait.min_duration_us", "1s", why);
}

static void on_row(const struct table *table, const void *row)
{
	request_totals_row(&totals, table, row);
}

static void each_second(void)
{
	if (!begin_ns)
		begin_ns = clock_monotonic_ns();
}

static void add_processes(json_t *report)
{
	for (const struct watched *w = watched_first(); w; w = w->next) {
		if (watched_is_unmeasured(w))
			report_add_note(report, "%s", w->reason.text);
	}
	if (measured.gone)
		report_add_note(report, "%s ended after %.1f s", watched_short_text(),
				measured_seconds(&measured));
	if (measured.lost)
		report_add_note(report, "%llu requests have no row for lack of space",
				(unsigned long long)measured.lost);
}

static json_t *make_report(const struct request_question *question)
{
	uint64_t from_ns = begin_ns ?: measured.begin_ns;
	double seconds = (double)(measured.end_ns - from_ns) / 1e9;
	json_t *report = request_totals_report(&totals, seconds);

	json_object_set_new(report, "from_us", json_integer((json_int_t)clock_wall_us(from_ns)));
	json_object_set_new(report, "to_us",
			    json_integer((json_int_t)clock_wall_us(measured.end_ns)));
	json_object_set_new(
		report, "by",
		json_string(question->part < 0 ? "" : request_parts[question->part].name));
	add_processes(report);
	return report;
}

int live_report(const struct request_question *question, json_t **ret_report, struct why *why)
{
	static char *const trackers[] = { "request", "gil_wait", "gc_pause" };
	const struct measure what = { .trackers = { (char **)trackers, ARRAY_SIZE(trackers) },
				      .probes = "gil_wait",
				      .needs = "request",
				      .default_duration_ns = 10 * NSEC_PER_SEC,
				      .progress = true,
				      .row = on_row,
				      .each_second = each_second };
	int err = measure_check(&measured, why);

	totals.question = question;
	if (!err)
		err = measure_run(&what, &measured, why);
	if (!err && totals.failed)
		err = why_fail(why, ENOMEM, "out of memory");
	if (!err)
		watched_conclude();
	if (!err && !totals.rows && !watched_any_live())
		err = watched_say_unmeasured(why);
	if (!err)
		*ret_report = make_report(question);
	request_totals_free(&totals);
	return err;
}
