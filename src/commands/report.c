// SPDX-License-Identifier: Apache-2.0
/* Report of `underspan requests`. See report.h. */
#include "commands/report.h"

#include <stdarg.h>
#include <string.h>

#include "commands/request_parts.h"

const char *report_text(const json_t *row, const char *name)
{
	const char *s = json_string_value(json_object_get(row, name));

	return s ? s : "";
}

/* ClickHouse may quote 64-bit numbers, depending on its settings and version. */
struct column_strings report_strings(const json_t *row, const char *name, const char **items,
				     size_t max)
{
	const json_t *list = json_object_get(row, name), *item;
	struct column_strings strings = { .items = items };
	size_t i;

	json_array_foreach (list, i, item) {
		if (strings.n < max)
			items[strings.n++] = json_string_value(item) ?: "?";
	}
	return strings;
}

double report_number(const json_t *row, const char *name)
{
	const json_t *v = json_object_get(row, name);

	return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

bool report_has(const json_t *row, const char *name)
{
	const json_t *v = json_object_get(row, name);

	return json_is_number(v) || json_is_string(v);
}

bool report_part(const json_t *row, int part, double *ret_ns)
{
	char column[32];

	snprintf(column, sizeof(column), "%s_ns", request_parts[part].name);
	*ret_ns = report_number(row, column);
	return report_has(row, column);
}

/* ---- threads missing ---- */

/*
 * Is more than a tenth of the requests without a thread of its own? Then the rest says nothing of
 * the listener: a loop that blocked looks like a thread, and requests of a pool with too few
 * threads are those whose thread is not known.
 */
static bool is_mixed(const json_t *l)
{
	enum { OTHERS = 9 };
	double requests = report_number(l, "requests");

	return requests > 0 && report_number(l, "on_loops") * OTHERS > requests;
}

/* Why the formula does not apply; NULL: applies. */
static const char *why_not(const json_t *l)
{
	if (report_number(l, "requests") <= 0)
		return "an event loop: its requests share its thread, or threads of a pool that "
		       "are not known";
	if (is_mixed(l))
		return "an event loop, with requests of its own thread or of an unknown one beside "
		       "those of threads";
	if (report_number(l, "connections") <= report_number(l, "thread_minutes"))
		return "each thread served one connection: too few requests to tell, or a server "
		       "that starts a thread per connection";
	return NULL;
}

static void set(json_t *object, const char *key, bool known, double value)
{
	json_object_set_new(object, key, known ? json_real(value) : json_null());
}

void report_add_listener(json_t *report, json_t *l, double seconds)
{
	const char *not_known = why_not(l);
	double requests = report_number(l, "requests"), threads = report_number(l, "threads");
	double service_s = requests > 0 ? report_number(l, "service_sum_ns") / requests / 1e9 : 0;
	double per_second = seconds > 0 ? requests / seconds : 0;
	double peak = report_number(l, "peak_arrivals");
	bool some = requests > 0 && !is_mixed(l), rate = some && seconds > 0;

	set(l, "service_ms", some, service_s * 1e3);
	set(l, "waited_ms", some, some ? report_number(l, "waited_sum_ns") / requests / 1e6 : 0);
	set(l, "per_second", rate, per_second);
	set(l, "peak_per_second", some, peak);
	set(l, "missing", rate && !not_known, per_second * service_s - threads);
	set(l, "peak_missing", some && !not_known, peak * service_s - threads);
	if (!not_known && !rate)
		not_known = "mean arrivals: no agent reported how long it measured";
	json_object_set_new(l, "why_not", not_known ? json_string(not_known) : json_null());
	json_array_append_new(json_object_get(report, "listeners"), l);
}

/* ---- parts not measured ---- */

void report_add_reason(json_t *report, const char *reason, double requests)
{
	const char *words = request_reason_words(reason);

	json_array_append_new(json_object_get(report, "not_measured"),
			      json_pack("{s:s, s:f, s:s}", "reason", reason, "requests", requests,
					"words", words ? words : ""));
}

const char *report_lost(char *buf, size_t size, double lost, const char *events)
{
	size_t word = strcspn(events, " "), one = *plural(lost) ? 0 : 1;

	snprintf(buf, size, "%.0f %.*s%s %s no row for lack of space", lost, (int)(word - one),
		 events, events + word, counted(lost, "has", "have"));
	return buf;
}

/* Trackers may have the same to say. */
void report_add_note(json_t *report, const char *fmt, ...)
{
	json_t *notes = json_object_get(report, "notes");
	const json_t *said;
	char text[1024];
	va_list ap;
	size_t i;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_foreach (notes, i, said) {
		if (!strcmp(json_string_value(said), text))
			return;
	}
	json_array_append_new(notes, json_string(text) ?: json_string("a note that is not UTF-8"));
}
