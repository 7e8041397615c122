// SPDX-License-Identifier: Apache-2.0
/* A timeline as an HTML page. See html.h. */
#include "commands/timeline/html.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "commands/report.h"
#include "commands/request_parts.h"
#include "commands/timeline/lanes.h"
#include "commands/timeline/limit.h"
#include "html/page.h"

enum {
	WINDOW_BYTES = 750000,	/* of events and texts of a window */
	SAMPLES_BYTES = 150000, /* of these, kept for samples */
	EVENT_BYTES = 40,	/* numbers of an event, about */
};

struct page {
	json_t *body, *texts, *numbers; /* numbers: the index of each text */
	struct timeline_left_out idle, shorter, samples;
	size_t bytes;
};

/* ---- texts ---- */

/* The number of a text; false: out of memory. */
static bool number_of(struct page *p, const char *text, json_t **ret)
{
	*ret = json_object_get(p->numbers, text);
	if (*ret)
		return true;
	p->bytes += html_page_text_bytes(text);
	*ret = json_integer((json_int_t)json_array_size(p->texts));
	if (json_object_set_new(p->numbers, text, *ret) ||
	    json_array_append_new(p->texts, json_string(text)))
		*ret = NULL;
	return *ret;
}

/* ---- which events ---- */

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Samples last, in their own order. */
static int longest_first(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	if (x->idle != y->idle)
		return x->idle ? 1 : -1;
	if (x->instant != y->instant)
		return x->instant ? 1 : -1;
	return x->instant ? by_number(timeline_scatter(x), timeline_scatter(y))
			  : by_number(y->duration_ns, x->duration_ns);
}

/* What waits may take: samples have the rest. */
static size_t bytes_of_waits(const struct timeline *t)
{
	size_t bytes = 0;

	for (size_t i = 0; i < t->n && bytes < SAMPLES_BYTES; i++)
		bytes += t->slices[i].instant ? 2 * EVENT_BYTES : 0;
	return WINDOW_BYTES - (bytes < SAMPLES_BYTES ? bytes : SAMPLES_BYTES);
}

static bool has_room(struct page *p, const struct slice *s, size_t bytes)
{
	json_t *number;

	if (s->idle || p->bytes > bytes || !number_of(p, s->brief, &number) ||
	    !number_of(p, s->look, &number))
		return false;
	p->bytes += EVENT_BYTES;
	return true;
}

static void keep_longest(struct page *p, struct timeline *t)
{
	size_t kept = 0, of_waits = bytes_of_waits(t);

	if (t->n)
		qsort(t->slices, t->n, sizeof(*t->slices), longest_first);
	for (size_t i = 0; i < t->n; i++) {
		struct slice *s = &t->slices[i];
		struct timeline_left_out *out = s->idle	     ? &p->idle
						: s->instant ? &p->samples
							     : &p->shorter;

		if (has_room(p, s, s->instant ? WINDOW_BYTES : of_waits)) {
			t->slices[kept++] = *s;
			continue;
		}
		out->rows++;
		out->ns += s->duration_ns;
		free(s->event);
	}
	t->n = kept;
}

static void say_in_perfetto(json_t *window, const struct timeline_left_out *out, const char *one,
			    const char *of)
{
	if (out->rows)
		report_add_note(window,
				"%llu %s%s%s, %.3f s%s left out: a file for Perfetto (-o "
				"FILE.pftrace) has %s",
				(unsigned long long)out->rows, one, plural(out->rows), of,
				(double)out->ns / 1e9, counted(out->rows, ", is", " together, are"),
				counted(out->rows, "it", "them"));
}

static void say_left_out(const struct page *p, json_t *window)
{
	if (p->idle.rows)
		report_add_note(window, "%llu wait%s of idle threads, %.3f s%s left out",
				(unsigned long long)p->idle.rows, plural(p->idle.rows),
				(double)p->idle.ns / 1e9,
				counted(p->idle.rows, ", is", " together, are"));
	say_in_perfetto(window, &p->shorter, "shorter event", "");
	say_in_perfetto(window, &p->samples, "sample", " of CPU time");
}

/* ---- lanes ---- */

/*
 * [begin_us, duration_ns, look, text, then of a request its parts before a thread has it, us]; of a
 * sample [begin_us, 0, look, text, CPU time, us]
 */
static json_t *json_of_slice(struct page *p, const struct slice *s, uint64_t from_ns)
{
	json_int_t begin_us = ((json_int_t)s->begin_ns - (json_int_t)from_ns) / 1000;
	json_t *look, *text,
		*event = json_pack("[I, I]", begin_us,
				   (json_int_t)(s->instant ? 0 : s->duration_ns));

	if (!event || !number_of(p, s->look, &look) || !number_of(p, s->brief, &text)) {
		json_decref(event);
		return NULL;
	}
	json_array_append(event, look);
	json_array_append(event, text);
	if (s->instant)
		json_array_append_new(event, json_integer((json_int_t)(s->duration_ns / 1000)));
	for (size_t i = 0; s->track == TRACK_REQUESTS && i < SLICE_PARTS - 1; i++)
		json_array_append_new(event, json_integer((json_int_t)(s->parts_ns[i] / 1000)));
	return event;
}

static json_t *json_of_lane(struct page *p, const struct timeline *t, const struct slice *slices,
			    size_t n, uint64_t from_ns)
{
	const struct slice *s = slices;
	json_t *events = json_array();
	char process[200];

	timeline_process_name(t, s->host_pid, process, sizeof(process));
	for (size_t i = 0; i < n; i++) {
		if (json_array_append_new(events, json_of_slice(p, &slices[i], from_ns))) {
			json_decref(events);
			return NULL;
		}
	}
	return json_pack("{s:s, s:I, s:I, s:s, s:o}", "process", process, "host_pid",
			 (json_int_t)s->host_pid, "host_tid", (json_int_t)s->host_tid, "name",
			 s->track == TRACK_THREAD
				 ? timeline_thread_name(t, s->host_pid, s->host_tid)
				 : timeline_track_names[s->track],
			 "events", events);
}

static int add_lanes(struct page *p, const struct timeline *t, uint64_t from_ns, json_t *lanes)
{
	for (size_t i = 0, n; i < t->n; i += n) {
		const struct slice *s = &t->slices[i];

		for (n = 1; i + n < t->n && lanes_same_track(s, s + n) && s[n].lane == s->lane;)
			n++;
		if (json_array_append_new(lanes, json_of_lane(p, t, s, n, from_ns)))
			return -ENOMEM;
	}
	return 0;
}

/* Adds a window as body[name]. */
static int add_window(struct page *p, struct timeline *t, const char *name, const char *title,
		      uint64_t from_ns, uint64_t to_ns)
{
	json_t *window = json_pack(
		"{s:I, s:I, s:s, s:[], s:[]}", "from_us", (json_int_t)(from_ns / NSEC_PER_USEC),
		"to_us", (json_int_t)(to_ns / NSEC_PER_USEC), "title", title, "lanes", "notes");
	int err;

	if (json_object_set_new(p->body, name, window))
		return -ENOMEM;
	p->bytes = 0;
	p->idle = p->shorter = p->samples = (struct timeline_left_out){ 0 };
	keep_longest(p, t);
	say_left_out(p, window);
	err = lanes_assign(t);
	return err ?: add_lanes(p, t, from_ns, json_object_get(window, "lanes"));
}

int timeline_html_write(struct timeline *t, const struct timeline_window *window, FILE *out)
{
	struct page p = { .texts = json_array(), .numbers = json_object() };
	json_t *parts = request_parts_json();
	int err;

	p.body = json_pack("{s:O, s:O}", "texts", p.texts, "notes", window->notes);
	err = p.body && parts
		      ? add_window(&p, t, "window", window->title, window->from_ns, window->to_ns)
		      : -ENOMEM;
	if (!err && window->before) {
		uint64_t from_ns = window->from_ns - window->shift_ns;

		err = add_window(&p, window->before, "before", window->before_title, from_ns,
				 from_ns + window->before_ns);
	}
	if (!err)
		err = html_page_write(out, "timeline", window->title, p.body, parts);
	json_decref(p.body);
	json_decref(p.texts);
	json_decref(p.numbers);
	json_decref(parts);
	return err ?: t->event.err;
}
