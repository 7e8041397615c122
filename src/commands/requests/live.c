// SPDX-License-Identifier: Apache-2.0
/* Requests of some processes, live. See live.h. */
#include "commands/requests/live.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "commands/measure_command.h"
#include "commands/request_parts.h"
#include "commands/requests/totals.h"
#include "commands/watched.h"

static struct request_totals totals;
static struct measured measured;
static uint64_t begin_ns; /* the trackers run; rows may begin earlier */

static void on_row(const struct table *table, const void *row)
{
	request_totals_row(&totals, table, row);
}

static void each_second(void)
{
	if (!begin_ns)
		begin_ns = clock_monotonic_ns();
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
	measure_add_notes(report, &measured, "requests");
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
