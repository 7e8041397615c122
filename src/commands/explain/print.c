// SPDX-License-Identifier: Apache-2.0
/* Timeline and sums of `underspan explain`. See print.h. */
#include "commands/explain/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/explain/connections.h"

enum { DEPTH_MAX = 20 };

/* Waits before the span, from request_time_parts. */
static void print_before(const struct picture *p, const json_t *span, int depth)
{
	const json_t *request = json_object_get(span, "request");
	const json_t *handoff = json_array_get(json_object_get(span, "handoff"), 0);
	int64_t accept = explain_number(request, "accept_from_us");
	int64_t accepted = explain_number(request, "accept_to_us");
	int64_t client = explain_number(request, "client_from_us");
	int64_t bytes = explain_number(request, "handoff_from_us");
	int64_t pickup = explain_number(request, "handoff_to_us");
	const char *place = explain_text(handoff, "place");
	char label[LABEL_MAX];

	if (accepted > accept)
		print_line(p, depth, "waited in the accept queue", accept, accepted,
			   accepted - accept);
	if (bytes > client)
		print_line(p, depth, "client had sent nothing yet", client, bytes, bytes - client);
	if (pickup <= bytes)
		return;
	if (*place)
		snprintf(label, sizeof(label),
			 "waited for a worker thread (%.16s): %.60s took it in %.300s",
			 explain_text(request, "queue"),
			 thread_label(handoff, "tid", "thread_name").text, place);
	else
		snprintf(label, sizeof(label), "waited for a worker thread (%.16s)",
			 explain_text(request, "queue"));
	print_line(p, depth, label, bytes, pickup, pickup - bytes);
}

/* ---- spans ---- */

/* The parent span; NULL: not in the trace. */
static const json_t *parent_of(const json_t *spans, const json_t *span)
{
	const char *parent = explain_text(span, "parent_id");
	const json_t *other;
	size_t i;

	json_array_foreach (spans, i, other) {
		if (*parent && other != span && !strcmp(explain_text(other, "span_id"), parent))
			return other;
	}
	return NULL;
}

static int depth_of(const json_t *spans, const json_t *span)
{
	int depth = 0;

	while (depth < DEPTH_MAX && (span = parent_of(spans, span)))
		depth++;
	return depth;
}

static void widen(struct picture *p, int64_t begin_us, int64_t end_us)
{
	if (begin_us < p->begin_us)
		p->begin_us = begin_us;
	if (end_us > p->end_us)
		p->end_us = end_us;
}

static struct picture picture_of(const json_t *spans)
{
	struct picture p = { .begin_us = INT64_MAX };
	const json_t *span, *request;
	size_t i;

	p.columns = isatty(STDOUT_FILENO) ? COLUMNS : 0;
	json_array_foreach (spans, i, span) {
		widen(&p, explain_number(span, "start_us"), explain_number(span, "end_us"));
		request = json_object_get(span, "request");
		if (request)
			widen(&p, explain_number(request, "from_us"),
			      explain_number(request, "to_us"));
	}
	return p;
}

static void print_span(const struct picture *p, const json_t *spans, const json_t *span)
{
	int depth = depth_of(spans, span);
	int64_t begin = explain_number(span, "start_us"), end = explain_number(span, "end_us");
	struct lines *lines = calloc(1, sizeof(*lines));

	print_before(p, span, depth);
	print_line(p, depth, explain_text(span, "name"), begin, end, end - begin);
	if (!lines)
		return;
	add_collections(lines, span);
	add_quota(lines, span);
	add_waits(lines, span);
	connections_add_lines(lines, span);
	print_lines(p, lines, depth + 1);
	free(lines);
}

/* ---- sums ---- */

struct part {
	const char *column, *words;
	bool always; /* printed even if 0 */
	bool waits;  /* a wait of the span's thread: counted in cpu_ms if not measured */
};

static const struct part parts[] = {
	{ "accept_ms", "in the listener's accept queue", true },
	{ "client_wait_ms", "accepted, but the client had sent nothing yet" },
	{ "handoff_ms", "waiting for a worker thread", true },
	{ "gc_ms", "stopped by garbage collections", true },
	{ "gil_ms", "in the span, waiting for the GIL", false, true },
	{ "lock_ms", "in the span, waiting for a lock", false, true },
	{ "net_ms", "in the span, waiting for the network", false, true },
	{ "disk_ms", "in the span, waiting for a disk", false, true },
	{ "page_fault_ms", "in the span, waiting for a page of memory", false, true },
	{ "sleep_ms", "in the span, asleep", false, true },
	{ "poll_ms", "in the span, waiting for several descriptors (an event loop)", false, true },
	{ "pipe_ms", "in the span, waiting for a pipe", false, true },
	{ "child_ms", "in the span, waiting for a child process", false, true },
	{ "other_ms", "in the span, off the CPU otherwise", false, true },
	{ "run_queue_ms", "in the span, ready to run without a CPU", false, true },
	{ "throttled_ms", "in the span, stopped by a CPU quota" },
};

/* The remainder of the span is CPU time only if waits of all causes were measured. */
static const char *cpu_words(const json_t *request)
{
	bool some = false, all = true;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		bool measured = explain_has(request, parts[i].column);

		if (!parts[i].waits)
			continue;
		some = some || measured;
		all = all && measured;
	}
	if (!some)
		return "the rest of the span: the handler, its waits included";
	if (!all)
		return "the rest of the span: the handler, and waits that were not measured";
	return "the handler on the CPU, and waits too short for a row";
}

/* "GIL: no agent ran": parts with the same reason are merged before the colon. */
static void print_not_measured(const struct picture *p, const json_t *texts)
{
	const json_t *text, *other;
	size_t i, j;

	json_array_foreach (texts, i, text) {
		const char *sentence = json_string_value(text) ?: "";
		const char *reason = strstr(sentence, ": ") ?: sentence;
		char names[LABEL_MAX] = "", label[2 * LABEL_MAX + 8], line[sizeof(label)];
		bool told = false;

		json_array_foreach (texts, j, other) {
			const char *its = json_string_value(other) ?: "";
			const char *same = strstr(its, ": ") ?: its;
			size_t n = strlen(names);

			if (strcmp(same, reason) != 0)
				continue;
			told = told || j < i;
			snprintf(names + n, sizeof(names) - n, "%s%.*s", n ? ", " : "",
				 (int)(same - its), its);
		}
		if (told)
			continue;
		snprintf(label, sizeof(label), "%s%s", names, reason);
		text_printable(line, sizeof(line), label);
		print_wrapped(p, line, printf("%13s  ", "not measured:"));
	}
}

static void print_sampled(const json_t *trackers)
{
	char name[LABEL_MAX];
	const json_t *tracker;
	size_t i;

	json_array_foreach (trackers, i, tracker) {
		text_printable(name, sizeof(name), json_string_value(tracker) ?: "");
		printf("%13s  of %s only some rows were kept then, for the governor's limit\n",
		       "an estimate:", name);
	}
}

static void print_sum(const struct picture *p, const json_t *span)
{
	const json_t *request = json_object_get(span, "request");
	char name[LABEL_MAX];

	text_printable(name, sizeof(name), explain_text(span, "name"));
	printf("\n%s: ", name);
	if (explain_has(request, "caller_ms"))
		printf("its caller waited %.1f ms, ", explain_ms(request, "caller_ms"));
	printf("the span says %.1f ms; where %.1f ms went:\n", explain_ms(request, "span_ms"),
	       explain_ms(request, "total_ms"));
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		double ms = explain_ms(request, parts[i].column);

		if (!explain_has(request, parts[i].column) || (!parts[i].always && ms < 0.05))
			continue;
		printf("%10.1f ms  %s", ms, parts[i].words);
		if (!strcmp(parts[i].column, "gc_ms"))
			printf(", %.1f of them inside the span",
			       explain_ms(request, "span_ms") - explain_ms(request, "handler_ms"));
		putchar('\n');
	}
	printf("%10.1f ms  %s\n", explain_ms(request, "cpu_ms"), cpu_words(request));
	printf("%10.1f ms  outside of all that: network, proxies, the server's own queue or event loop\n",
	       explain_ms(request, "rest_ms"));
	print_not_measured(p, json_object_get(request, "not_measured"));
	print_sampled(json_object_get(request, "sampled"));
}

const char *explain_why_nothing(const json_t *spans, bool *ret_names_thread)
{
	const char *why = "it has no server span";
	const json_t *span, *request;
	size_t i;

	*ret_names_thread = true;
	json_array_foreach (spans, i, span) {
		request = json_object_get(span, "request");
		if (request &&
		    (explain_number(request, "measured") || explain_has(request, "handoff_ms") ||
		     explain_has(request, "accept_ms")))
			return NULL;
		if (!request)
			continue;
		why = explain_text(request, "why_not");
		*ret_names_thread = explain_number(span, "pid") && explain_number(span, "tid");
	}
	return why;
}

void explain_print(const char *trace_id, const json_t *spans)
{
	struct picture p = picture_of(spans);
	const json_t *span;
	size_t i;

	printf("trace %s\n\n%10s %10s\n", trace_id, "at ms", "ms");
	json_array_foreach (spans, i, span)
		print_span(&p, spans, span);
	json_array_foreach (spans, i, span) {
		if (json_object_get(span, "request"))
			print_sum(&p, span);
	}
}
