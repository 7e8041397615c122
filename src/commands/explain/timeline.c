// SPDX-License-Identifier: Apache-2.0
/* Lines of the timelines of `underspan explain`, and events as such lines. See timeline.h. */
#include "commands/explain/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

const char *explain_text(const json_t *row, const char *name)
{
	const char *s = json_string_value(json_object_get(row, name));

	return s ? s : "";
}

/* ClickHouse may quote 64-bit numbers, depending on its settings and version. */
int64_t explain_number(const json_t *row, const char *name)
{
	const json_t *v = json_object_get(row, name);

	if (json_is_string(v))
		return strtoll(json_string_value(v), NULL, 10);
	return json_is_real(v) ? (int64_t)json_real_value(v) : json_integer_value(v);
}

bool explain_has(const json_t *row, const char *name)
{
	return json_is_number(json_object_get(row, name));
}

double explain_ms(const json_t *row, const char *name)
{
	return json_number_value(json_object_get(row, name));
}

int64_t explain_overlap_us(const json_t *row, int64_t from_us, int64_t to_us)
{
	int64_t begin = explain_number(row, "begin_us"), end = explain_number(row, "end_us");

	return (end < to_us ? end : to_us) - (begin > from_us ? begin : from_us);
}

int64_t explain_handled_us(const json_t *request, const json_t *row)
{
	return explain_overlap_us(row, explain_number(request, "handled_us"),
				  explain_number(request, "to_us"));
}

bool explain_is_loop(const json_t *request)
{
	return !strcmp(explain_text(request, "model"), "loop") ||
	       explain_number(request, "on_loop") != 0;
}

bool explain_has_peer(const json_t *request)
{
	return explain_ms(request, "net_peer_ms") > 0 &&
	       (explain_number(request, "net_peer_port") != 0 ||
		*explain_text(request, "net_peer_path"));
}

const char *explain_peer(const json_t *request, char ret[EXPLAIN_PEER_SIZE])
{
	const char *path = explain_text(request, "net_peer_path");

	if (*path)
		snprintf(ret, EXPLAIN_PEER_SIZE, "%s", path);
	else
		snprintf(ret, EXPLAIN_PEER_SIZE, "%.60s port %lld",
			 explain_text(request, "net_peer_ip"),
			 (long long)explain_number(request, "net_peer_port"));
	return ret;
}

/* ---- lines of the timeline ---- */

void print_wrapped(const struct picture *p, const char *label, int indent)
{
	size_t room = p->columns > indent + 20 ? (size_t)(p->columns - indent) : 0, width;

	while (room && text_width(label) > room) {
		size_t n = text_prefix(label, room, &width);
		size_t space = n;

		while (space > n / 2 && label[space] != ' ')
			space--;
		if (space > n / 2)
			n = space;
		printf("%.*s\n%*s", (int)n, label, indent, "");
		label += n;
		while (*label == ' ')
			label++;
	}
	puts(label);
}

void print_line(const struct picture *p, int depth, const char *name, int64_t begin_us,
		int64_t end_us, int64_t sum_us)
{
	int64_t whole = p->end_us > p->begin_us ? p->end_us - p->begin_us : 1;
	int from = (int)((begin_us - p->begin_us) * BAR_WIDTH / whole);
	int to = (int)((end_us - p->begin_us) * BAR_WIDTH / whole);
	char bar[BAR_WIDTH + 1], label[LABEL_MAX];
	int indent;

	memset(bar, ' ', BAR_WIDTH);
	bar[BAR_WIDTH] = 0;
	from = from >= BAR_WIDTH ? BAR_WIDTH - 1 : from < 0 ? 0 : from;
	for (int i = from; i < BAR_WIDTH && (i < to || i == from); i++)
		bar[i] = '=';
	text_printable(label, sizeof(label), name);
	indent = printf("%10.1f %10.1f  |%s|  %*s", (double)(begin_us - p->begin_us) / 1000,
			(double)sum_us / 1000, bar, depth * 2, "");
	print_wrapped(p, label, indent);
}

/* ---- events under a span, similar ones merged ---- */

void lines_add(struct lines *lines, const char *label, int64_t begin_us, int64_t end_us)
{
	struct line *line;
	size_t i = 0;

	while (i < lines->n && strcmp(lines->items[i].label, label) != 0)
		i++;
	if (i == LINES_MAX) {
		lines->left_out++;
		return;
	}
	line = &lines->items[i];
	if (i == lines->n) {
		lines->n++;
		*line = (struct line){ .begin_us = begin_us, .end_us = end_us };
		snprintf(line->label, sizeof(line->label), "%s", label);
	}
	line->begin_us = begin_us < line->begin_us ? begin_us : line->begin_us;
	line->end_us = end_us > line->end_us ? end_us : line->end_us;
	line->sum_us += end_us - begin_us;
	line->times++;
}

static int by_begin(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return x->begin_us < y->begin_us ? -1 : x->begin_us > y->begin_us;
}

void print_lines(const struct picture *p, struct lines *lines, int depth)
{
	qsort(lines->items, lines->n, sizeof(lines->items[0]), by_begin);
	for (size_t i = 0; i < lines->n; i++) {
		const struct line *line = &lines->items[i];
		char label[LABEL_MAX + 32];

		snprintf(label, sizeof(label), line->times > 1 ? "%s (%u times)" : "%s",
			 line->label, line->times);
		print_line(p, depth, label, line->begin_us, line->end_us, line->sum_us);
	}
	if (lines->left_out)
		printf("%*s... and %zu other%s, see --json\n", 26 + BAR_WIDTH + depth * 2, "",
		       lines->left_out, plural(lines->left_out));
}

struct thread_label thread_label(const json_t *row, const char *tid, const char *name)
{
	struct thread_label label;

	if (*explain_text(row, name))
		snprintf(label.text, sizeof(label.text), "%.60s", explain_text(row, name));
	else
		snprintf(label.text, sizeof(label.text), "%lld",
			 (long long)explain_number(row, tid));
	return label;
}

void add_waits(struct lines *lines, const json_t *span)
{
	const json_t *wait;
	size_t i;

	json_array_foreach (json_object_get(span, "waits"), i, wait) {
		const char *cause = explain_text(wait, "cause"),
			   *place = explain_text(wait, "place");
		const char *message = explain_text(wait, "waited_for");
		char label[LABEL_MAX];

		if (!strcmp(cause, "gil"))
			snprintf(label, sizeof(label),
				 "waited for the GIL, which %.60s had%s%.300s",
				 thread_label(wait, "by_tid", "by_name").text, *place ? " in " : "",
				 place);
		else
			snprintf(label, sizeof(label), "%s%.60s%s%.300s",
				 !strcmp(cause, "preempt") ? "had no CPU: "
				 : !strcmp(cause, "stopped") || !strcmp(cause, "frozen") ? "was "
				 : *message ? "waited for "
					    : "waited: ",
				 *message ? message : cause, *place ? ", in " : "", place);
		lines_add(lines, label, explain_number(wait, "begin_us"),
			  explain_number(wait, "end_us"));
	}
}

void add_collections(struct lines *lines, const json_t *span)
{
	const json_t *pause;
	size_t i;

	json_array_foreach (json_object_get(span, "gc"), i, pause) {
		bool own = explain_number(pause, "tid") == explain_number(span, "tid");
		const char *place = explain_text(pause, "place");
		char label[LABEL_MAX];

		snprintf(label, sizeof(label), "gc generation %lld by %s thread %.60s%s%.300s",
			 (long long)explain_number(pause, "generation"),
			 own ? "its own" : "sibling",
			 thread_label(pause, "tid", "thread_name").text,
			 *place ? ", set off by " : "", place);
		lines_add(lines, label, explain_number(pause, "begin_us"),
			  explain_number(pause, "end_us"));
	}
}

void add_stalls(struct lines *lines, const json_t *request)
{
	const json_t *stall;
	size_t i;

	json_array_foreach (json_object_get(request, "stalls"), i, stall) {
		const char *place = explain_text(stall, "place");
		char label[LABEL_MAX];

		snprintf(label, sizeof(label), "event loop did not poll: %.20s%s%.300s",
			 explain_text(stall, "cause"), *place ? ", in " : "", place);
		lines_add(lines, label, explain_number(stall, "begin_us"),
			  explain_number(stall, "end_us"));
	}
}

void add_quota(struct lines *lines, const json_t *span)
{
	const json_t *window;
	size_t i;

	json_array_foreach (json_object_get(span, "throttle"), i, window) {
		char label[128];

		snprintf(label, sizeof(label), "throttled %.1f ms by the CPU quota of %.40s",
			 (double)explain_number(window, "throttled_us") / 1000,
			 explain_text(window, "cgroup"));
		lines_add(lines, label, explain_number(window, "begin_us"),
			  explain_number(window, "end_us"));
	}
}
