// SPDX-License-Identifier: Apache-2.0
/* Texts about a window of a database. See window_text.h. */
#include "commands/window_text.h"

#include <stdio.h>
#include <time.h>

#include "base/text.h"
#include "commands/report.h"

enum { PIDS_SHOWN = 16 };

static void add_place(FILE *out, const json_t *report)
{
	static const char *const names[] = { "namespace", "pod", "container" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *name = report_text(report, names[i]);

		if (*name)
			fprintf(out, ", %s %.200s", names[i], name);
	}
}

void window_text(const json_t *report, char *buf, size_t size)
{
	const json_t *pids = json_object_get(report, "pids"), *pid;
	const char *host = report_text(report, "host"), *service = report_text(report, "service");
	size_t n_pids = json_array_size(pids), i;
	FILE *out = fmemopen(buf, size, "w");

	buf[0] = 0;
	if (!out)
		return;
	if (n_pids)
		fprintf(out, n_pids > 1 ? "processes" : "process");
	else if (!*service)
		fputs("all services", out);
	json_array_foreach (pids, i, pid) {
		if (i < PIDS_SHOWN)
			fprintf(out, "%s %lld", i ? "," : "", (long long)json_number_value(pid));
	}
	if (n_pids > PIDS_SHOWN)
		fprintf(out, " and %zu more", n_pids - PIDS_SHOWN);
	if (*service)
		fprintf(out, "%sservice %.200s", n_pids ? " of " : "", service);
	add_place(out, report);
	if (*host)
		fprintf(out, " on %.200s", host);
	fclose(out);
	buf[size - 1] = 0;
}

void window_time_text(const json_t *report, char *buf, size_t size)
{
	time_t begin = (time_t)(report_number(report, "from_us") / 1e6);
	time_t end = (time_t)(report_number(report, "to_us") / 1e6);
	struct tm tm;
	char a[32], b[32];

	strftime(a, sizeof(a), "%F %T", gmtime_r(&begin, &tm));
	strftime(b, sizeof(b), begin / 86400 == end / 86400 ? "%T" : "%F %T", gmtime_r(&end, &tm));
	snprintf(buf, size, "%s to %s UTC, measured for %.1f s", a, b,
		 report_number(report, "measured_s"));
}

void window_print_notes(const json_t *report)
{
	const json_t *note, *notes = json_object_get(report, "notes");
	size_t i;

	json_array_foreach (notes, i, note)
		text_print_line(stdout, "%s", json_string_value(note));
}
