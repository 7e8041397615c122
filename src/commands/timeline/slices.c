// SPDX-License-Identifier: Apache-2.0
/* Slices of tracks from rows. See slices.h. */
#include "commands/timeline/slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"
#include "commands/request_parts.h"
#include "commands/report.h"
#include "commands/timeline/event.h"

/* 50 MB */
enum { HOLDINGS_MAX = 80000 };

/* A thread held the GIL while another waited. */
struct holding {
	uint32_t host_pid, tid;
	uint64_t begin_ns, end_ns;
	char name[128], line[512];
};

/* ---- names ---- */

/* A copy of a NULL-terminated text, if not empty. */
static void keep_text(char *to, size_t size, const char *from)
{
	if (*from)
		text_printable(to, size, from);
}

static void note_process(struct timeline *t, const json_t *row, uint32_t host_pid, bool main)
{
	struct timeline_process *p;

	HASH_FIND(hh, t->processes, &host_pid, sizeof(host_pid), p);
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p) {
			t->err = -ENOMEM;
			return;
		}
		p->host_pid = host_pid;
		HASH_ADD(hh, t->processes, host_pid, sizeof(p->host_pid), p);
	}
	if (main || !*p->comm)
		keep_text(p->comm, sizeof(p->comm), report_text(row, "comm"));
	keep_text(p->service, sizeof(p->service), report_text(row, "service"));
}

static void note_thread(struct timeline *t, const json_t *row)
{
	uint32_t key[2] = { (uint32_t)report_number(row, "host_pid"),
			    (uint32_t)report_number(row, "host_tid") };
	bool main = report_number(row, "pid") == report_number(row, "tid");
	struct timeline_thread *thread;

	note_process(t, row, key[0], main);
	HASH_FIND(hh, t->threads, key, sizeof(key), thread);
	if (!thread) {
		thread = calloc(1, sizeof(*thread));
		if (!thread) {
			t->err = -ENOMEM;
			return;
		}
		memcpy(thread->key, key, sizeof(key));
		thread->main = main;
		HASH_ADD(hh, t->threads, key, sizeof(thread->key), thread);
	}
	keep_text(thread->name, sizeof(thread->name), report_text(row, "thread_name"));
	keep_text(thread->comm, sizeof(thread->comm), report_text(row, "comm"));
}

static void note_host(struct timeline *t, const char *host)
{
	if (!*t->host)
		snprintf(t->host, sizeof(t->host), "%s", host);
	else if (strcmp(t->host, host) != 0)
		snprintf(t->other_host, sizeof(t->other_host), "%s", host);
}

/* ---- slices ---- */

/* Gives the event encoded so far to the slice. */
static int take_event(struct timeline *t, struct slice *s)
{
	struct event *e = &t->event;
	size_t n = e->body.len, brief = strlen(e->brief) + 1, look = strlen(e->look) + 1;

	s->event = malloc(n + brief + look);
	if (!s->event)
		return -ENOMEM;
	if (n)
		memcpy(s->event, e->body.data, n);
	s->event_bytes = (uint32_t)n;
	s->brief = memcpy(s->event + n, e->brief, brief);
	s->look = memcpy(s->event + n + brief, e->look, look);
	e->body.len = 0;
	return 0;
}

/* Appends a slice with the event encoded so far. */
static struct slice *add_slice(struct timeline *t, enum timeline_track track, uint32_t host_pid,
			       uint32_t host_tid, uint64_t begin_ns, uint64_t duration_ns)
{
	struct slice *s;

	if (t->n == t->capacity) {
		size_t capacity = t->capacity ? 2 * t->capacity : 1024;
		struct slice *grown = realloc(t->slices, capacity * sizeof(*grown));

		if (!grown) {
			t->err = -ENOMEM;
			return NULL;
		}
		t->slices = grown;
		t->capacity = capacity;
	}
	s = &t->slices[t->n];
	*s = (struct slice){ .host_pid = host_pid,
			     .host_tid = host_tid,
			     .track = track,
			     .kind = t->kind,
			     .begin_ns = begin_ns,
			     .duration_ns = duration_ns,
			     .end_ns = begin_ns + duration_ns };
	t->err = take_event(t, s);
	if (t->err)
		return NULL;
	t->n++;
	return s;
}

static uint64_t begin_of(const json_t *row)
{
	return (uint64_t)report_number(row, "start_us") * NSEC_PER_USEC;
}

static struct slice *add_slice_of_row(struct timeline *t, enum timeline_track track,
				      const json_t *row)
{
	uint32_t tid = (uint32_t)report_number(row, "host_tid");
	struct slice *s;

	s = add_slice(t, track, (uint32_t)report_number(row, "host_pid"),
		      track == TRACK_THREAD ? tid : 0, begin_of(row),
		      (uint64_t)report_number(row, "duration_ns"));
	if (s) {
		s->thread = tid;
		s->idle = report_number(row, "idle") > 0;
		t->n_of[t->kind]++;
	}
	return s;
}

static struct slice *add_row(struct timeline *t, enum timeline_track track, const json_t *row)
{
	event_ms(&t->event, row, "duration_ns", "duration, ms");
	event_weight(&t->event, row);
	return add_slice_of_row(t, track, row);
}

static void add_off_cpu(struct timeline *t, const json_t *row)
{
	const char *cause = report_text(row, "cause"),
		   *waker = report_text(row, "waker_thread_name");
	char name[64], text[200], look[EVENT_LOOK_BYTES];

	snprintf(look, sizeof(look), "cause %.9s", *cause ? cause : "other");
	if (report_number(row, "idle"))
		snprintf(name, sizeof(name), "idle");
	else if (!strcmp(cause, "preempt"))
		snprintf(name, sizeof(name), "waits for a CPU");
	else
		snprintf(name, sizeof(name), "off the CPU: %.32s", *cause ? cause : "other");
	event_name(&t->event, look, name);
	event_brief(&t->event, "in ", report_text(row, "py_frames"));
	event_text(&t->event, row, "cause", "cause");
	event_text(&t->event, row, "syscall", "system call");
	event_text(&t->event, row, "state", "state");
	event_ms(&t->event, row, "runq_ns", "waited for a CPU, ms");
	if (report_number(row, "waker_host_tid")) {
		snprintf(text, sizeof(text), "%.150s (%.0f)",
			 *waker ? waker : report_text(row, "waker_comm"),
			 report_number(row, "waker_host_tid"));
		event_said(&t->event, "woken by", text);
	}
	event_text(&t->event, row, "py_frames", "Python stack");
	if (!*report_text(row, "py_frames")) {
		event_text(&t->event, row, "kernel_frames", "kernel stack");
		event_text(&t->event, row, "user_frames", "native stack");
	}
	add_row(t, TRACK_THREAD, row);
}

static void add_gc_pause(struct timeline *t, const json_t *row)
{
	char name[64], look[EVENT_LOOK_BYTES];

	snprintf(look, sizeof(look), "gc %.0f", report_number(row, "generation"));
	snprintf(name, sizeof(name), "collection, generation %.0f",
		 report_number(row, "generation"));
	event_name(&t->event, look, name);
	event_brief(&t->event, "set off in ", report_text(row, "py_frames"));
	event_text(&t->event, row, "reason", "reason");
	event_number(&t->event, row, "collected", "collected");
	event_number(&t->event, row, "uncollectable", "uncollectable");
	event_number(&t->event, row, "long_lived", "objects left");
	event_text(&t->event, row, "py_frames", "Python stack");
	add_row(t, TRACK_THREAD, row);
}

static void add_loop_stall(struct timeline *t, const json_t *row)
{
	static const char *const parts[] = { "cpu", "runq", "gil",   "lock",
					     "net", "disk", "sleep", "other" };
	char column[16], name[32];

	event_name(&t->event, "part loop_busy", "event loop stalled");
	event_brief(&t->event, "in ", report_text(row, "py_frames"));
	event_text(&t->event, row, "loop", "loop");
	event_number(&t->event, row, "waiting", "ready events");
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		snprintf(column, sizeof(column), "%s_ns", parts[i]);
		snprintf(name, sizeof(name), "%s, ms", parts[i]);
		event_ms(&t->event, row, column, name);
	}
	event_text(&t->event, row, "py_frames", "Python stack");
	add_row(t, TRACK_THREAD, row);
}

static void add_handoff(struct timeline *t, const json_t *row)
{
	event_name(&t->event, "part queue", "hand-off");
	event_brief(&t->event, "to ", report_text(row, "thread_name"));
	event_text(&t->event, row, "queue", "queue");
	event_text(&t->event, row, "pickup", "picked up by");
	event_text(&t->event, row, "thread_name", "worker");
	event_text(&t->event, row, "main_thread_name", "accepted by");
	event_ms(&t->event, row, "handoff_ns", "waited for a thread, ms");
	event_ms(&t->event, row, "client_wait_ns", "waited for the client, ms");
	event_text(&t->event, row, "py_frames", "Python stack");
	add_row(t, TRACK_HANDOFFS, row);
}

static void add_request(struct timeline *t, const json_t *row)
{
	static const char *const before[SLICE_PARTS - 1] = { "accept_queue_ns", "client_wait_ns",
							     "queue_ns", "pool_wait_ns" };
	const char *method = report_text(row, "method");
	char name[600], column[48];
	struct slice *s;
	uint64_t left;

	snprintf(name, sizeof(name), "%.32s %.500s", *method ? method : "request",
		 report_text(row, "path"));
	event_name(&t->event, "part handled", name);
	event_brief(&t->event, "thread ", report_text(row, "thread_name"));
	event_number(&t->event, row, "status", "status");
	event_text(&t->event, row, "outcome", "outcome");
	event_text(&t->event, row, "request_id", "request id");
	event_text(&t->event, row, "trace_id", "trace id");
	event_text(&t->event, row, "span_id", "span id");
	event_text(&t->event, row, "thread_name", "thread");
	event_number(&t->event, row, "host_tid", "thread id");
	event_text(&t->event, row, "model", "model");
	event_number(&t->event, row, "server_port", "port");
	event_number(&t->event, row, "busy_threads", "busy threads");
	event_number(&t->event, row, "queue_depth", "queue depth");
	for (int i = 0; i < REQUEST_PARTS; i++) {
		snprintf(column, sizeof(column), "%s_ns", request_parts[i].name);
		snprintf(name, sizeof(name), "%s, ms", request_parts[i].name);
		event_ms(&t->event, row, column, name);
	}
	s = add_row(t, TRACK_REQUESTS, row);
	if (!s)
		return;
	left = s->duration_ns;
	for (size_t i = 0; i < SLICE_PARTS - 1; i++) {
		uint64_t ns = (uint64_t)report_number(row, before[i]);

		s->parts_ns[i] = ns < left ? ns : left;
		left -= s->parts_ns[i];
	}
	s->parts_ns[SLICE_PARTS - 1] = left;
}

/* The clock's moment is the sample's end_time; a period of it is no time that the thread computed.
 */
static void add_on_cpu(struct timeline *t, const json_t *row)
{
	const char *frames = report_text(row, "py_frames"), *end = strstr(frames, " < ");
	char name[512];
	struct slice *s;

	snprintf(name, sizeof(name), "on a CPU%s%.*s", *frames ? ": " : "",
		 (int)(end ? end - frames : (long)strlen(frames)), frames);
	event_name(&t->event, "part cpu", name);
	event_number(&t->event, row, "cpu", "CPU");
	event_text(&t->event, row, "py_frames", "Python stack");
	event_ms(&t->event, row, "duration_ns", "CPU time by the clock, ms");
	event_weight(&t->event, row);
	s = add_slice_of_row(t, TRACK_THREAD, row);
	if (s) {
		s->instant = true;
		s->begin_ns = s->end_ns;
	}
}

/* ---- the GIL ---- */

static void add_holding(struct timeline *t, const struct holding *h)
{
	if (t->n_holdings == HOLDINGS_MAX) {
		t->holdings_left_out++;
		return;
	}
	if (t->n_holdings == t->holdings_capacity) {
		size_t capacity = t->holdings_capacity ? 2 * t->holdings_capacity : 256;
		struct holding *grown = realloc(t->holdings, capacity * sizeof(*grown));

		if (!grown) {
			t->err = -ENOMEM;
			return;
		}
		t->holdings = grown;
		t->holdings_capacity = capacity;
	}
	t->holdings[t->n_holdings++] = *h;
}

/* Holders one after the other, in the order of their begin; the line is of the first. */
static void add_holders(struct timeline *t, const json_t *row)
{
	const json_t *holder, *list = json_object_get(row, "holders");
	const char *frames = report_text(row, "holder_py_frames");
	uint64_t at_ns = begin_of(row);
	size_t i;

	json_array_foreach (list, i, holder) {
		uint64_t ns = (uint64_t)report_number(holder, "ns");
		struct holding h = { .host_pid = (uint32_t)report_number(row, "host_pid"),
				     .tid = (uint32_t)report_number(holder, "tid"),
				     .begin_ns = at_ns,
				     .end_ns = at_ns + ns };
		const char *end = strstr(frames, " < ");

		at_ns += ns;
		if (!h.tid)
			continue;
		keep_text(h.name, sizeof(h.name), report_text(holder, "thread_name"));
		if (i == 0)
			snprintf(h.line, sizeof(h.line), "%.*s",
				 (int)(end ? end - frames : (long)strlen(frames)), frames);
		add_holding(t, &h);
	}
}

static void add_gil_wait(struct timeline *t, const json_t *row)
{
	const json_t *holder, *list = json_object_get(row, "holders");
	char text[1000] = "", name[80];
	size_t i, n = 0;

	json_array_foreach (list, i, holder) {
		snprintf(name, sizeof(name), "%.64s", report_text(holder, "thread_name"));
		if (!*name)
			snprintf(name, sizeof(name), "%s %.0f",
				 report_number(holder, "tid") ? "thread" : "not known",
				 report_number(holder, "tid"));
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %.3f ms", n ? ", " : "",
				      name, report_number(holder, "ns") / 1e6);
		if (n > sizeof(text) - 200)
			break;
	}
	event_name(&t->event, "cause gil", "waits for the GIL");
	event_brief(&t->event, "held by ", text);
	event_brief(&t->event, "in ", report_text(row, "holder_py_frames"));
	if (n)
		event_said(&t->event, "held by", text);
	event_text(&t->event, row, "holder_py_frames", "stack of the first holder");
	event_ms(&t->event, row, "runq_ns", "waited for a CPU, ms");
	event_text(&t->event, row, "py_frames", "Python stack");
	add_row(t, TRACK_THREAD, row);
	add_holders(t, row);
}

static int by_holder(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;

	if (x->host_pid != y->host_pid)
		return x->host_pid < y->host_pid ? -1 : 1;
	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static void add_holder_slice(struct timeline *t, const struct holding *h, unsigned int waits)
{
	char name[160];

	if (*h->name)
		snprintf(name, sizeof(name), "%s", h->name);
	else
		snprintf(name, sizeof(name), "thread %u", h->tid);
	event_name(&t->event, "part gil", name);
	event_brief(&t->event, "in ", h->line);
	event_count(&t->event, "waits of other threads", waits);
	if (*h->line)
		event_said(&t->event, "at", h->line);
	add_slice(t, TRACK_GIL_HOLDER, h->host_pid, 0, h->begin_ns, h->end_ns - h->begin_ns);
}

/* Several threads may wait for the same holder at a time: one slice. */
void timeline_finish(struct timeline *t)
{
	struct holding now = { 0 };
	unsigned int waits = 0;

	if (t->n_holdings)
		qsort(t->holdings, t->n_holdings, sizeof(*t->holdings), by_holder);
	for (size_t i = 0; i < t->n_holdings && !t->err; i++) {
		const struct holding *h = &t->holdings[i];

		if (waits && h->host_pid == now.host_pid && h->tid == now.tid &&
		    h->begin_ns <= now.end_ns) {
			now.end_ns = h->end_ns > now.end_ns ? h->end_ns : now.end_ns;
			waits++;
			continue;
		}
		if (waits)
			add_holder_slice(t, &now, waits);
		now = *h;
		waits = 1;
	}
	if (waits && !t->err)
		add_holder_slice(t, &now, waits);
}

/* ---- all ---- */

const struct timeline_kind timeline_kinds[TIMELINE_KINDS] = {
	{ "request", "requests", "the longest", add_request },
	{ "handoff", "hand-offs", "the longest", add_handoff },
	{ "gil_wait", "waits for the GIL", "the longest", add_gil_wait },
	{ "gc_pause", "collections", "the longest", add_gc_pause },
	{ "loop_stall", "stalls of event loops", "the longest", add_loop_stall },
	{ "off_cpu", "waits off the CPU", "the longest", add_off_cpu },
	{ "on_cpu", "samples of CPU time", "an even choice of the others", add_on_cpu },
};

void timeline_add(struct timeline *t, const struct timeline_kind *kind, const json_t *row)
{
	t->err = t->err ?: t->event.err;
	if (t->err || !report_number(row, "host_pid"))
		return;
	note_host(t, report_text(row, "host"));
	note_thread(t, row);
	t->kind = (uint8_t)(kind - timeline_kinds);
	if (!t->err)
		kind->add(t, row);
}

void timeline_free(struct timeline *t)
{
	struct timeline_thread *thread, *next_thread;
	struct timeline_process *process, *next_process;

	HASH_ITER(hh, t->threads, thread, next_thread)
	{
		HASH_DEL(t->threads, thread);
		free(thread);
	}
	HASH_ITER(hh, t->processes, process, next_process)
	{
		HASH_DEL(t->processes, process);
		free(process);
	}
	for (size_t i = 0; i < t->n; i++)
		free(t->slices[i].event);
	free(t->slices);
	free(t->holdings);
	event_free(&t->event);
	*t = (struct timeline){ 0 };
}
