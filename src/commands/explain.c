// SPDX-License-Identifier: Apache-2.0
/*
 * `underspan explain TRACE_ID`: the spans of one trace with what no span shows around and inside
 * them: the hand-off before; the collections, the used up CPU quota and what its thread waited for
 * during, with the Python code that is to blame. The questions are sql/explain/.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "clickhouse/sql_files.h"
#include "clickhouse/target.h"
#include "commands/commands.h"
#include "config.h"
#include "log.h"
#include "text.h"

enum { NAME_WIDTH = 200, BAR_WIDTH = 24 };

struct explanation {
	struct clickhouse_client *client;
	int64_t begin_us, end_us; /* of the whole trace, hand-offs included */
};

static const char *sql_file(const char *path)
{
	for (const struct sql_file *f = sql_files; f->path; f++) {
		if (!strcmp(f->path, path))
			return f->text;
	}
	return NULL; /* a test asks for each */
}

/* Runs one of sql/explain/ and returns its rows, an array of objects, in *ret_rows. */
static int ask(struct explanation *e, const char *path, const struct clickhouse_param *params,
	       json_t **ret_rows, struct why *why)
{
	struct clickhouse_reply reply;
	AUTO_FREE char *text = NULL;
	json_error_t error;
	json_t *root;
	size_t len;
	int err = clickhouse_query_text(e->client, sql_file(path), "JSON", params, &text, &len,
					&reply, why);

	if (err)
		return err;
	root = json_loadb(text, len, 0, &error);
	*ret_rows = json_incref(json_object_get(root, "data"));
	json_decref(root);
	if (json_is_array(*ret_rows))
		return 0;
	return why_fail(why, EBADMSG, "ClickHouse's answer is not JSON: %s", error.text);
}

static const char *text_of(const json_t *row, const char *name)
{
	const char *s = json_string_value(json_object_get(row, name));

	return s ? s : "";
}

/* ClickHouse may quote 64-bit numbers, depending on its settings and version. */
static int64_t number_of(const json_t *row, const char *name)
{
	const json_t *v = json_object_get(row, name);

	if (json_is_string(v))
		return strtoll(json_string_value(v), NULL, 10);
	return json_integer_value(v);
}

static int64_t min_us(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t max_us(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- one line of the picture ---- */

static void print_line(const struct explanation *e, int depth, const char *name, int64_t begin_us,
		       int64_t end_us)
{
	int64_t span = e->end_us > e->begin_us ? e->end_us - e->begin_us : 1;
	int from = (int)((begin_us - e->begin_us) * BAR_WIDTH / span);
	int to = (int)((end_us - e->begin_us) * BAR_WIDTH / span);
	char bar[BAR_WIDTH + 1], label[NAME_WIDTH + 1];

	memset(bar, ' ', BAR_WIDTH);
	bar[BAR_WIDTH] = 0;
	if (from >= BAR_WIDTH)
		from = BAR_WIDTH - 1;
	if (from < 0)
		from = 0;
	for (int i = from; i < BAR_WIDTH && (i < to || i == from); i++)
		bar[i] = '=';
	text_printable(label, sizeof(label), name);
	printf("%10.1f %10.1f  |%s|  %*s%-s\n", (double)(begin_us - e->begin_us) / 1000,
	       (double)(end_us - begin_us) / 1000, bar, depth * 2, "", label);
}

/* ---- spans ---- */

/* The span that waited for this one: a server span's caller. NULL when it is not in the trace. */
static const json_t *parent_of(const json_t *spans, const json_t *span)
{
	const char *parent = text_of(span, "parent_id");
	const json_t *other;
	size_t i;

	json_array_foreach (spans, i, other) {
		if (*parent && other != span && !strcmp(text_of(other, "span_id"), parent))
			return other;
	}
	return NULL;
}

static int depth_of(const json_t *spans, const json_t *span)
{
	int depth = 0;

	while (depth < 20 && (span = parent_of(spans, span)))
		depth++;
	return depth;
}

/* The parameters that tell a process apart, and three numbers that differ by question. */
struct question {
	char pid[16], tid[16], from[24], to[24];
	struct clickhouse_param params[8];
};

static const struct clickhouse_param *ask_about(struct question *q, const json_t *span,
						int64_t from_us, int64_t to_us)
{
	snprintf(q->pid, sizeof(q->pid), "%lld", (long long)number_of(span, "pid"));
	snprintf(q->tid, sizeof(q->tid), "%lld", (long long)number_of(span, "tid"));
	snprintf(q->from, sizeof(q->from), "%lld", (long long)from_us);
	snprintf(q->to, sizeof(q->to), "%lld", (long long)to_us);
	memcpy(q->params,
	       (struct clickhouse_param[8]){ { "param_pid", q->pid },
					     { "param_tid", q->tid },
					     { "param_host", text_of(span, "host") },
					     { "param_container", text_of(span, "container") },
					     { "param_start_us", q->from },
					     { "param_from_us", q->from },
					     { "param_to_us", q->to } },
	       sizeof(q->params));
	return q->params;
}

/* Attaches as `key` what the query says about the span between two times. */
static int attach(struct explanation *e, json_t *span, const char *key, const char *query,
		  int64_t from_us, int64_t to_us, struct why *why)
{
	struct question q;
	json_t *rows;
	int err = ask(e, query, ask_about(&q, span, from_us, to_us), &rows, why);

	if (!err)
		json_object_set_new(span, key, rows);
	return err;
}

/* Attaches "handoff", "gc", "throttle" and "waits" to each server span that says where it ran;
 * widens the picture. */
static int look_under(struct explanation *e, const json_t *spans, json_t *span, struct why *why)
{
	int64_t begin = number_of(span, "start_us"), end = number_of(span, "end_us"), from, to;
	const json_t *caller = parent_of(spans, span);
	struct question q;
	json_t *rows;
	int err = 0;

	if (number_of(span, "is_server") && number_of(span, "tid")) {
		err = ask(e, "explain/handoff.sql", ask_about(&q, span, begin, end), &rows, why);
		if (err)
			return err;
		if (json_array_size(rows)) {
			json_t *handoff = json_array_get(rows, 0);

			json_object_set(span, "handoff", handoff);
			begin = number_of(handoff, "begin_us");
		}
		json_decref(rows);
		/* a stopped process delays also what is not accepted yet, or not answered yet */
		from = caller ? min_us(begin, number_of(caller, "start_us")) : begin;
		to = caller ? max_us(end, number_of(caller, "end_us")) : end;
		err = attach(e, span, "gc", "explain/gc.sql", from, to, why);
		if (!err)
			err = attach(e, span, "throttle", "explain/throttle.sql", from, to, why);
		if (!err)
			err = attach(e, span, "waits", "explain/waits.sql",
				     number_of(span, "start_us"), number_of(span, "end_us"), why);
		if (err)
			return err;
	}
	if (begin < e->begin_us)
		e->begin_us = begin;
	if (end > e->end_us)
		e->end_us = end;
	return 0;
}

/* A thread by its name, or else by its id. */
struct thread_label {
	char text[64];
};

static struct thread_label thread_label(const json_t *row, const char *tid, const char *name)
{
	struct thread_label label;

	if (*text_of(row, name))
		snprintf(label.text, sizeof(label.text), "%.60s", text_of(row, name));
	else
		snprintf(label.text, sizeof(label.text), "%lld", (long long)number_of(row, tid));
	return label;
}

static void print_handoff(const struct explanation *e, const json_t *handoff, int depth)
{
	const char *place = text_of(handoff, "place");
	int64_t begin = number_of(handoff, "begin_us"), end = number_of(handoff, "end_us");
	int64_t waited = number_of(handoff, "handoff_us"),
		client = number_of(handoff, "client_wait_us");
	char label[512];

	if (client > 0 && begin + client <= end) {
		print_line(e, depth, "client had sent nothing yet", begin, begin + client);
		begin += client;
	}
	if (waited <= 0)
		return;
	if (*place)
		snprintf(label, sizeof(label),
			 "waited for a worker thread (%.16s): %.60s took it in %.300s",
			 text_of(handoff, "queue"),
			 thread_label(handoff, "tid", "thread_name").text, place);
	else
		snprintf(label, sizeof(label), "waited for a worker thread (%.16s)",
			 text_of(handoff, "queue"));
	print_line(e, depth, label, begin, end);
}

static void print_waits(const struct explanation *e, const json_t *span, int depth)
{
	const json_t *wait;
	size_t i;

	json_array_foreach (json_object_get(span, "waits"), i, wait) {
		const char *cause = text_of(wait, "cause"), *place = text_of(wait, "place");
		char label[512];

		if (!strcmp(cause, "gil"))
			snprintf(label, sizeof(label),
				 "waited for the GIL, which %.60s had%s%.300s",
				 thread_label(wait, "by_tid", "by_name").text, *place ? " in " : "",
				 place);
		else
			snprintf(label, sizeof(label), "%s%.20s%s%.300s",
				 strcmp(cause, "preempt") ? "waited: " : "had no CPU: ", cause,
				 *place ? ", in " : "", place);
		print_line(e, depth + 1, label, number_of(wait, "begin_us"),
			   number_of(wait, "end_us"));
	}
}

static void print_gc(const struct explanation *e, const json_t *span, int depth)
{
	const json_t *pause;
	size_t i;

	json_array_foreach (json_object_get(span, "gc"), i, pause) {
		int64_t begin = number_of(pause, "begin_us"), end = number_of(pause, "end_us");
		bool own = number_of(pause, "tid") == number_of(span, "tid");
		const char *place = text_of(pause, "place");
		char label[512];

		if (end - begin < 1000) /* too many and too short to be what somebody looks for */
			continue;
		snprintf(label, sizeof(label), "gc generation %lld by %s thread %.60s%s%.300s",
			 (long long)number_of(pause, "generation"), own ? "its own" : "sibling",
			 thread_label(pause, "tid", "thread_name").text,
			 *place ? ", set off by " : "", place);
		print_line(e, depth + 1, label, begin, end);
	}
}

/* All threads of the process stand still then; what else they waited for contains it. */
static void print_throttle(const struct explanation *e, const json_t *span, int depth)
{
	const json_t *window;
	size_t i;

	json_array_foreach (json_object_get(span, "throttle"), i, window) {
		char label[128];

		snprintf(label, sizeof(label), "throttled %.1f ms by the CPU quota of %.40s",
			 (double)number_of(window, "throttled_us") / 1000,
			 text_of(window, "cgroup"));
		print_line(e, depth + 1, label, number_of(window, "begin_us"),
			   number_of(window, "end_us"));
	}
}

/* ---- the sum ---- */

/* How much of begin..end the process was collecting; pauses of one process do not overlap. */
static int64_t gc_between(const json_t *span, int64_t begin, int64_t end)
{
	const json_t *pause;
	int64_t sum = 0;
	size_t i;

	json_array_foreach (json_object_get(span, "gc"), i, pause) {
		int64_t from = number_of(pause, "begin_us"), to = number_of(pause, "end_us");

		from = from > begin ? from : begin;
		to = to < end ? to : end;
		sum += to > from ? to - from : 0;
	}
	return sum;
}

/* As sql/views/request_time.sql counts: each moment once, a collection before everything else. */
static void print_sum(const json_t *spans, const json_t *span)
{
	int64_t start = number_of(span, "start_us"), end = number_of(span, "end_us");
	const json_t *handoff = json_object_get(span, "handoff"), *caller = parent_of(spans, span);
	int64_t pickup = handoff ? number_of(handoff, "end_us") : start;
	int64_t wait = pickup - number_of(handoff, "handoff_us");
	int64_t begin = caller ? number_of(caller, "start_us") : wait;
	int64_t done = caller ? number_of(caller, "end_us") : end;
	int64_t gc = gc_between(span, min_us(begin, wait), max_us(done, end));
	int64_t gc_handling = gc_between(span, start, end);
	int64_t waited = pickup - wait - gc_between(span, wait, pickup);
	int64_t handler = end - start - gc_handling;
	char name[64];

	text_printable(name, sizeof(name), text_of(span, "name"));
	printf("\n%s: ", name);
	if (caller)
		printf("its caller waited %.1f ms, ", (double)(done - begin) / 1000);
	printf("the span says %.1f ms; where the time went:\n", (double)(end - start) / 1000);
	printf("%10.1f ms  waiting for a worker thread%s\n", (double)waited / 1000,
	       handoff ? "" : " (no hand-off seen)");
	printf("%10.1f ms  stopped by garbage collections, %.1f of them inside the span\n",
	       (double)gc / 1000, (double)gc_handling / 1000);
	printf("%10.1f ms  the handler itself\n", (double)handler / 1000);
	printf("%10.1f ms  the rest: network, proxies, accept queue, waits for the GIL\n",
	       (double)(done - begin - waited - gc - handler) / 1000);
}

static int explain(const char *trace_id, struct why *why)
{
	const struct clickhouse_param params[] = { { "param_trace_id", trace_id }, { 0 } };
	struct explanation e = { .begin_us = INT64_MAX };
	struct clickhouse_target target;
	json_t *spans = NULL, *span;
	size_t i;
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = clickhouse_client_new(&target.endpoints[0], &e.client, why);
	if (!err)
		err = ask(&e, "explain/spans.sql", params, &spans, why);
	if (!err && json_array_size(spans) == 0)
		err = why_fail(why, ENOENT, "no span of trace %.64s in otel_traces", trace_id);
	json_array_foreach (spans, i, span) {
		if (!err)
			err = look_under(&e, spans, span, why);
	}
	if (!err)
		printf("trace %s\n\n%10s %10s\n", trace_id, "at ms", "ms");
	json_array_foreach (spans, i, span) {
		int depth = err ? 0 : depth_of(spans, span);

		if (err)
			break;
		if (json_object_get(span, "handoff"))
			print_handoff(&e, json_object_get(span, "handoff"), depth);
		print_line(&e, depth, text_of(span, "name"), number_of(span, "start_us"),
			   number_of(span, "end_us"));
		print_gc(&e, span, depth);
		print_throttle(&e, span, depth);
		print_waits(&e, span, depth);
	}
	json_array_foreach (spans, i, span) {
		if (!err && number_of(span, "is_server") && number_of(span, "tid"))
			print_sum(spans, span);
	}
	json_decref(spans);
	clickhouse_client_free(e.client);
	clickhouse_release(&target);
	return err;
}

/* W3C trace context: 16 bytes as hex; the dashes of a UUID are forgiven, case too. */
static int parse_trace_id(const char *word, char ret[33], struct why *why)
{
	size_t n = 0;

	for (const char *c = word; *c; c++) {
		if (*c == '-')
			continue;
		if (!strchr("0123456789abcdefABCDEF", *c) || n == 32)
			return why_fail(why, EINVAL,
					"'%.64s' is no trace id: use its 32 hex digits", word);
		ret[n++] = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
	}
	ret[n] = 0;
	return n == 32 ? 0
		       : why_fail(why, EINVAL, "'%.64s' is no trace id: use its 32 hex digits",
				  word);
}

int command_explain(int argc, char **argv)
{
	const struct option_table tables[] = { clickhouse_options, { 0 } };
	struct why why = { { 0 } };
	char *word, trace_id[33];
	size_t n_words = 1;
	int err = config_parse(tables, argc, argv, &word, &n_words, &why);

	if (err > 0) {
		puts("usage: underspan explain (--clickhouse=URL | --store=DIR) TRACE_ID\n\n"
		     "Where one request's time went, span by span.\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err && n_words != 1)
		err = why_fail(&why, EINVAL, "which trace? underspan explain TRACE_ID");
	if (!err)
		err = parse_trace_id(word, trace_id, &why);
	if (!err)
		err = explain(trace_id, &why);
	config_free(tables);
	return command_end(err, &why);
}
