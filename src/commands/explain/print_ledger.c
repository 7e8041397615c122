// SPDX-License-Identifier: Apache-2.0
/* Requests of the ledger as text. See print_ledger.h. */
#include "commands/explain/print_ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/explain/connections.h"
#include "commands/explain/outbound.h"
#include "commands/explain/timeline.h"
#include "commands/request_parts.h"

enum { MEANWHILE_SHOWN = 5, SAY_MAX = 2048 };
static const double SHOWN_MS = 0.05; /* shorter parts have no line */

/* A paragraph: the first line begins at `first`, further lines at `indent`. */
static void say(int first, int indent, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void say(int first, int indent, const char *fmt, ...)
{
	const struct picture p = { .columns = COLUMNS };
	char text[SAY_MAX], line[SAY_MAX], margin[COLUMNS];
	size_t n, width;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_printable(line, sizeof(line), text);
	n = text_prefix(line, (size_t)(indent - first), &width);
	snprintf(margin, sizeof(margin), "%*s%.*s", first, "", (int)n, line);
	printf("%s", margin);
	print_wrapped(&p, line + n, indent);
}

/* ---- parts ---- */

static void print_part(const struct picture *p, const json_t *r, const char *name, double at_ms,
		       double ms)
{
	const struct ledger_part *part = request_part_named(name);
	int64_t begin_us = p->begin_us + (int64_t)(at_ms * 1000 + 0.5),
		us = (int64_t)(ms * 1000 + 0.5);
	char label[LABEL_MAX], peer[EXPLAIN_PEER_SIZE];

	snprintf(label, sizeof(label), "%.60s", part ? part->words : name);
	if (!strcmp(name, "net") && explain_has_peer(r))
		snprintf(label, sizeof(label), "network, %.1f ms of it: %s",
			 explain_ms(r, "net_peer_ms"), explain_peer(r, peer));
	print_line(p, 0, label, begin_us, begin_us + us, us);
}

/* A part of the thread's time. */
static bool is_share(const char *name)
{
	const struct ledger_part *part = request_part_named(name);

	return part && part >= request_part_named("cpu") &&
	       part < request_part_named("client_slow");
}

static void print_waterfall(const struct picture *p, const json_t *r)
{
	const json_t *names = json_object_get(r, "part"), *name;
	bool told = false;
	size_t i;

	printf("\n%10s %10s\n", "at ms", "ms");
	json_array_foreach (names, i, name) {
		const char *text = json_string_value(name) ?: "";
		double at = json_number_value(json_array_get(json_object_get(r, "part_at_ms"), i));
		double ms = json_number_value(json_array_get(json_object_get(r, "part_ms"), i));

		if (ms < SHOWN_MS)
			continue;
		if (!told && is_share(text))
			say(12, 12, "its thread from here on (shares, in no order of time):");
		told = told || is_share(text);
		print_part(p, r, text, at, ms);
	}
}

/* ---- head ---- */

static void print_span_of(const json_t *r)
{
	if (*explain_text(r, "span_id"))
		say(2, 4, "span \"%.200s\" of %.100s says %.1f ms (found by its %.20s)",
		    explain_text(r, "span_name"), explain_text(r, "service"),
		    explain_ms(r, "span_ms"), explain_text(r, "span_by"));
	else
		say(2, 4, "no span is known to be its own: %.200s", explain_text(r, "no_span"));
	if (*explain_text(r, "trace_id"))
		say(2, 4, "trace %.40s", explain_text(r, "trace_id"));
}

/* What ends a process by this signal, as far as the signal tells. */
static const char *signal_words(const char *signal)
{
	static const char *const crashes[] = { "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT" };

	if (!strcmp(signal, "SIGKILL"))
		return ": out of memory, or a supervisor (gunicorn: timeout)";
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
		if (!strcmp(signal, crashes[i]))
			return ": a crash, as in C code";
	}
	return "";
}

/* How the request ended, if not by its answer. As endWords() of explain.js says it. */
static void put_end_words(char *buf, size_t size, const json_t *r)
{
	const char *outcome = explain_text(r, "outcome"), *end_by = explain_text(r, "end_by");

	if (!strcmp(end_by, "exit"))
		snprintf(buf, size, "its process exited");
	else if (!strncmp(end_by, "SIG", 3))
		snprintf(buf, size, "its process was ended by %.10s%s", end_by,
			 signal_words(end_by));
	else
		snprintf(buf, size, "%.110s",
			 !strcmp(outcome, "answered") ? ""
			 : !strcmp(outcome, "client_aborted")
				 ? "the client closed before the answer"
			 : !strcmp(outcome, "no_answer")
				 ? "the server closed the connection without an answer, as a "
				   "gunicorn worker does at its timeout"
			 : !strcmp(outcome, "upgraded") ? "with a change to another protocol"
							: outcome);
}

static void print_head(const json_t *r)
{
	const char *path = explain_text(r, "path"), *method = explain_text(r, "method");
	const char *link = explain_text(r, "link");
	char status[32] = "no answer", end[120];

	if (explain_has(r, "status"))
		snprintf(status, sizeof(status), "status %lld",
			 (long long)explain_number(r, "status"));
	say(0, 2, "request %.20s: %.40s %.300s, %s, %.1f ms", explain_text(r, "request_id"),
	    *method ? method : "(method not known)", *path ? path : "(path not known)", status,
	    explain_ms(r, "duration_ms"));
	if (!*explain_text(r, "span_id") && *explain_text(r, "own_service"))
		say(2, 4, "service %.100s", explain_text(r, "own_service"));
	say(2, 4, "%.30s UTC, %.100s, pid %lld, %s %.60s, port %lld, from %.60s",
	    explain_text(r, "start_time"), explain_text(r, "host"),
	    (long long)explain_number(r, "pid"), explain_is_loop(r) ? "event loop" : "thread",
	    thread_label(r, "tid", "thread_name").text, (long long)explain_number(r, "server_port"),
	    explain_text(r, "peer_ip"));
	put_end_words(end, sizeof(end), r);
	if (*end)
		say(2, 4, "ended: %s", end);
	if (*link && strcmp(link, "same") != 0)
		say(2, 4, "its thread is not certain: known by a %.20s", link);
	if (explain_ms(r, "weight") > 1)
		say(2, 4, "stands for %.1f requests (a sample of the short ones)",
		    explain_ms(r, "weight"));
	print_span_of(r);
}

/* ---- around the request ---- */

/* Of the longer of the two waits; the other may have been a thousandth of it. */
static const json_t *threads_of_wait(const json_t *r)
{
	const json_t *accepting = json_object_get(r, "accept_threads");
	const json_t *reading = json_object_get(r, "queue_threads");

	if (!reading || (accepting && explain_ms(r, "accept_queue_ms") > explain_ms(r, "queue_ms")))
		return accepting;
	return reading;
}

/* How busy the threads were while the request waited, otherwise when it was read. */
static void print_threads(const json_t *r)
{
	const json_t *busy = threads_of_wait(r);
	long long threads = explain_number(r, "threads");
	char waiting[48] = "";

	if (explain_has(r, "queue_depth"))
		snprintf(waiting, sizeof(waiting), "; %lld request%s waited at its arrival",
			 (long long)explain_number(r, "queue_depth"),
			 plural(explain_number(r, "queue_depth")));
	if (explain_has(busy, "busy_share")) {
		double percent = json_number_value(json_object_get(busy, "busy_share")) * 100;

		say(0, 2,
		    "while it waited, the %lld thread%s of its process that serve%s requests %s "
		    "busy with others %.0f %% of the time%s",
		    threads, plural(threads), counted(threads, "s", ""),
		    counted(threads, "was", "were"), percent > 100 ? 100 : percent, waiting);
	} else if (!explain_has(r, "busy_threads")) {
		say(0, 2,
		    "how many further threads of its process had requests when it was read was "
		    "not measured%s",
		    waiting);
	} else {
		say(0, 2, "when it was read, %lld further thread%s of its process had requests%s",
		    (long long)explain_number(r, "busy_threads"),
		    plural(explain_number(r, "busy_threads")), waiting);
	}
}

static void print_meanwhile(const json_t *r)
{
	const json_t *rows = json_object_get(r, "meanwhile"), *row;
	bool waited = explain_number(r, "waited_to_us") != explain_number(r, "to_us");
	size_t i;

	putchar('\n');
	print_threads(r);
	if (!json_array_size(rows))
		return;
	say(0, 2,
	    "the process had these requests %s:", waited ? "while it waited" : "at the same time");
	printf("%10s %9s %11s\n", "held ms", "requests", "longest ms");
	json_array_foreach (rows, i, row) {
		char figures[64];

		if (i == MEANWHILE_SHOWN) {
			say(2, 4, "... and %zu other path%s, see --json", json_array_size(rows) - i,
			    plural(json_array_size(rows) - i));
			break;
		}
		snprintf(figures, sizeof(figures), "%10.1f %9.0f %11.1f",
			 explain_ms(row, "held_ms"), explain_ms(row, "requests"),
			 explain_ms(row, "longest_ms"));
		say(0, 34, "%s  %.20s %.300s", figures, explain_text(row, "method"),
		    explain_text(row, "path"));
	}
}

static void print_events(const struct picture *p, const json_t *r)
{
	struct lines *lines = calloc(1, sizeof(*lines));

	if (!lines)
		return;
	add_collections(lines, r);
	add_quota(lines, r);
	add_waits(lines, r);
	add_stalls(lines, r);
	connections_add_lines(lines, r);
	outbound_add_lines(lines, r);
	if (lines->n) {
		putchar('\n');
		say(0, 2, "rows of that time, of %s:",
		    explain_is_loop(r) ? "the event loop's thread (other requests' too) and process"
				       : "its thread and process");
	}
	print_lines(p, lines, 0);
	free(lines);
}

static void print_causes(const json_t *r)
{
	const json_t *causes = json_object_get(r, "causes"), *cause;
	const json_t *before = json_object_get(r, "before");
	size_t i;

	putchar('\n');
	json_array_foreach (causes, i, cause) {
		say(0, 7, "cause: %.1f ms: %s", explain_ms(cause, "ms"),
		    explain_text(cause, "said"));
		if (*explain_text(cause, "fix"))
			say(0, 7, "  fix: %s", explain_text(cause, "fix"));
	}
	if (!json_array_size(causes))
		say(0, 7, "cause: no part stands out");
	if (before)
		say(0, 7, "before: %s", explain_text(before, "said"));
	if (*explain_text(before, "fix"))
		say(0, 7, "  fix: %s", explain_text(before, "fix"));
}

/* ---- parts not measured ---- */

/* Why the tracker has no probe in the process; "": unknown. */
static const char *refusal_of(const json_t *r, const char *reason)
{
	const char *tracker = request_reason_tracker(reason);
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, "refused"), i, row) {
		if (tracker && !strcmp(explain_text(row, "tracker"), tracker))
			return explain_text(row, "reason");
	}
	return "";
}

/* What the next sums of waits may add: rows with places of short waits, and a pool's threads. */
static void print_pending(const json_t *r)
{
	const json_t *pending = json_array_get(json_object_get(r, "pending"), 0);
	int64_t since = explain_number(pending, "until_us"), from = explain_number(r, "from_us");

	since = since > from ? since : from;
	if (pending)
		say(0, 15,
		    "not yet stored: the sums of waits of the request's last %.1f s, which name "
		    "code of short waits and what a pool's threads did: ask again in %lld s",
		    (double)(explain_number(r, "to_us") - since) / 1e6,
		    (long long)explain_number(pending, "wait_s"));
}

static void print_not_measured(const json_t *r)
{
	const json_t *missing = json_object_get(r, "part_missing"), *item;
	char names[SAY_MAX] = "";
	size_t i;

	json_array_foreach (missing, i, item) {
		const char *name = json_string_value(item) ?: "";
		const struct ledger_part *part = request_part_named(name);
		size_t n = strlen(names);

		snprintf(names + n, sizeof(names) - n, "%s%.60s", n ? ", " : "",
			 part ? part->brief : name);
	}
	if (*names)
		say(0, 14, "not measured: %s", names);
	json_array_foreach (json_object_get(r, "not_measured"), i, item) {
		const char *reason = json_string_value(item) ?: "";
		const char *refusal = refusal_of(r, reason);

		say(0, 14, "not measured: %.300s%s%.300s", request_reason_words(reason) ?: reason,
		    *refusal ? "; refused: " : "", refusal);
	}
	if (!*names && !json_array_size(json_object_get(r, "not_measured")))
		say(0, 14, "not measured: nothing, all parts were");
	json_array_foreach (json_object_get(r, "sampled"), i, item)
		say(0, 14,
		    "not known of each: one event of %.20s in %lld had a row then, as the agent held "
		    "its limit of CPU (governor.cpu_percent): code may be missing above",
		    explain_text(item, "tracker"), (long long)explain_number(item, "one_in"));
}

static void print_request(const json_t *r)
{
	const struct picture p = { .begin_us = explain_number(r, "from_us"),
				   .end_us = explain_number(r, "to_us"),
				   .columns = COLUMNS };

	print_head(r);
	print_waterfall(&p, r);
	if (json_object_get(r, "causes")) {
		print_meanwhile(r);
		print_events(&p, r);
		print_causes(r);
		print_pending(r);
	}
	print_not_measured(r);
	putchar('\n');
}

void print_ledger(const json_t *requests)
{
	const json_t *request;
	size_t i;

	json_array_foreach (requests, i, request)
		print_request(request);
}
