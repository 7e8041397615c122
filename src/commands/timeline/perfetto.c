// SPDX-License-Identifier: Apache-2.0
/* Traces of Perfetto. See perfetto.h. */
#include "commands/timeline/perfetto.h"

#include "base/text.h"
#include "commands/protobuf.h"
#include "commands/timeline/lanes.h"

/* Field numbers of trace.proto, trace_packet.proto, clock_snapshot.proto and track_event/. */
enum { TRACE_PACKET = 1 };
enum {
	PACKET_CLOCKS = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_EVENT = 11,
	PACKET_TRACK = 60
};
enum { CLOCKS_CLOCK = 1, CLOCK_ID = 1, CLOCK_TIMESTAMP = 2 };
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PROCESS = 3, TRACK_OF_THREAD = 4, TRACK_PARENT = 5 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6 };
enum { THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5 };
enum { EVENT_TYPE = 9, EVENT_TRACK = 11 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3 };
enum { ID_REALTIME = 1, ID_BOOTTIME = 6 };
enum { SEQUENCE = 1 };

static const char *const part_names[SLICE_PARTS] = {
	"in the accept queue", "waits for the client's bytes", "waits to be read",
	"waits for a pool's thread", "a thread has it"
};

struct writer {
	struct timeline *timeline;
	struct buffer framed, packet, message, inner;
	FILE *out;
	uint64_t last_uuid, process_uuid, thread_uuid;
	uint64_t shift_ns; /* of all events */
	bool before;	   /* of the window before */
	int err;
};

/* ---- packets ---- */

static void end_packet(struct writer *w)
{
	protobuf_number(&w->err, &w->packet, PACKET_SEQUENCE, SEQUENCE);
	protobuf_message(&w->err, &w->framed, TRACE_PACKET, &w->packet);
	if (!w->err && fwrite(w->framed.data, 1, w->framed.len, w->out) != w->framed.len)
		w->err = -EIO;
	w->framed.len = 0;
}

/* The event is in w->message. */
static void put_event(struct writer *w, uint64_t time_ns, uint64_t track, unsigned int type)
{
	protobuf_number(&w->err, &w->message, EVENT_TYPE, type);
	protobuf_number(&w->err, &w->message, EVENT_TRACK, track);
	protobuf_number(&w->err, &w->packet, PACKET_TIMESTAMP, time_ns + w->shift_ns);
	protobuf_message(&w->err, &w->packet, PACKET_EVENT, &w->message);
	end_packet(w);
}

static void put_bytes(struct writer *w, const void *bytes, size_t n)
{
	if (!w->err)
		w->err = buffer_append(&w->message, bytes, n);
}

static void put_clock(struct writer *w, unsigned int id, uint64_t ns)
{
	protobuf_number(&w->err, &w->inner, CLOCK_ID, id);
	protobuf_number(&w->err, &w->inner, CLOCK_TIMESTAMP, ns);
	protobuf_message(&w->err, &w->message, CLOCKS_CLOCK, &w->inner);
}

/* The trace's clock is the wall clock: viewers show the time of day. */
static void put_clocks(struct writer *w, uint64_t ns)
{
	put_clock(w, ID_BOOTTIME, ns);
	put_clock(w, ID_REALTIME, ns);
	protobuf_number(&w->err, &w->packet, PACKET_TIMESTAMP, ns);
	protobuf_message(&w->err, &w->packet, PACKET_CLOCKS, &w->message);
	end_packet(w);
}

/* ---- tracks ---- */

/* Ends a track's packet; members but these are in w->message. */
static uint64_t put_track(struct writer *w, uint64_t parent, const char *name)
{
	uint64_t uuid = ++w->last_uuid;

	protobuf_number(&w->err, &w->message, TRACK_UUID, uuid);
	if (parent)
		protobuf_number(&w->err, &w->message, TRACK_PARENT, parent);
	if (*name)
		protobuf_text(&w->err, &w->message, TRACK_NAME, name);
	protobuf_message(&w->err, &w->packet, PACKET_TRACK, &w->message);
	end_packet(w);
	return uuid;
}

static void put_process(struct writer *w, uint32_t host_pid)
{
	char name[200], before[240];

	timeline_process_name(w->timeline, host_pid, name, sizeof(name));
	if (w->before) { /* the pid may be another process now */
		snprintf(before, sizeof(before), "before: %s (%u)", name, host_pid);
		w->process_uuid = put_track(w, 0, before);
		return;
	}
	protobuf_number(&w->err, &w->inner, PROCESS_PID, host_pid);
	protobuf_text(&w->err, &w->inner, PROCESS_NAME, name);
	protobuf_message(&w->err, &w->message, TRACK_PROCESS, &w->inner);
	w->process_uuid = put_track(w, 0, "");
}

static uint64_t put_thread(struct writer *w, const struct slice *s)
{
	const char *name = timeline_thread_name(w->timeline, s->host_pid, s->host_tid);

	if (s->lane)
		return put_track(w, w->thread_uuid, name);
	if (w->before) {
		w->thread_uuid = put_track(w, w->process_uuid, name);
		return w->thread_uuid;
	}
	protobuf_number(&w->err, &w->inner, THREAD_PID, s->host_pid);
	protobuf_number(&w->err, &w->inner, THREAD_TID, s->host_tid);
	protobuf_text(&w->err, &w->inner, THREAD_NAME, name);
	protobuf_message(&w->err, &w->message, TRACK_OF_THREAD, &w->inner);
	w->thread_uuid = put_track(w, w->process_uuid, "");
	return w->thread_uuid;
}

static uint64_t put_lane(struct writer *w, const struct slice *s)
{
	if (s->track == TRACK_THREAD)
		return put_thread(w, s);
	return put_track(w, w->process_uuid, timeline_track_names[s->track]);
}

/* ---- slices ---- */

static void put_parts(struct writer *w, const struct slice *s, uint64_t track)
{
	uint64_t at_ns = s->begin_ns;

	for (size_t i = 0; i < SLICE_PARTS; i++) {
		uint64_t end_ns = at_ns + s->parts_ns[i];

		if (!s->parts_ns[i])
			continue;
		event_name(&w->timeline->event, "", part_names[i]);
		put_bytes(w, w->timeline->event.body.data, w->timeline->event.body.len);
		w->timeline->event.body.len = 0;
		put_event(w, at_ns, track, TYPE_BEGIN);
		put_event(w, end_ns, track, TYPE_END);
		at_ns = end_ns;
	}
}

/* Slices of a lane, by begin. */
static void put_slices(struct writer *w, const struct slice *slices, size_t n)
{
	uint64_t ends_ns[LANE_DEPTH], track = put_lane(w, slices);
	size_t depth = 0;

	for (size_t i = 0; i < n && !w->err; i++) {
		const struct slice *s = &slices[i];

		while (depth && ends_ns[depth - 1] <= s->begin_ns)
			put_event(w, ends_ns[--depth], track, TYPE_END);
		put_bytes(w, s->event, s->event_bytes);
		put_event(w, s->begin_ns, track, s->instant ? TYPE_INSTANT : TYPE_BEGIN);
		if (s->instant)
			continue;
		put_parts(w, s, track);
		ends_ns[depth++] = s->end_ns;
	}
	while (depth)
		put_event(w, ends_ns[--depth], track, TYPE_END);
}

static void put_window(struct writer *w, const struct timeline_window *window)
{
	struct event *e = &w->timeline->event;
	const json_t *note;
	char name[32];
	uint64_t track;
	size_t i;

	track = put_track(w, 0, "underspan");
	event_name(e, "", window->title);
	json_array_foreach (window->notes, i, note) {
		snprintf(name, sizeof(name), "note %zu", i + 1);
		event_said(e, name, json_string_value(note) ?: "");
	}
	put_bytes(w, e->body.data, e->body.len);
	e->body.len = 0;
	put_event(w, window->from_ns, track, TYPE_BEGIN);
	put_event(w, window->to_ns, track, TYPE_END);
	if (!window->before)
		return;
	track = put_track(w, 0, "underspan: before");
	event_name(e, "", window->before_title);
	put_bytes(w, e->body.data, e->body.len);
	e->body.len = 0;
	put_event(w, window->from_ns, track, TYPE_BEGIN);
	put_event(w, window->from_ns + window->before_ns, track, TYPE_END);
}

static void put_all(struct writer *w)
{
	const struct timeline *t = w->timeline;

	for (size_t i = 0, n; i < t->n && !w->err; i += n) {
		const struct slice *s = &t->slices[i];

		if (!i || s[-1].host_pid != s->host_pid)
			put_process(w, s->host_pid);
		for (n = 1; i + n < t->n && lanes_same_track(s, s + n) && s[n].lane == s->lane;)
			n++;
		put_slices(w, s, n);
	}
}

static void put_before(struct writer *w, const struct timeline_window *window)
{
	if (!window->before || w->err)
		return;
	w->err = lanes_assign(window->before);
	w->timeline = window->before;
	w->shift_ns = window->shift_ns;
	w->before = true;
	put_all(w);
}

int perfetto_write(struct timeline *t, const struct timeline_window *window, FILE *out)
{
	struct writer w = { .timeline = t, .out = out, .err = lanes_assign(t) };

	put_clocks(&w, window->from_ns);
	put_window(&w, window);
	put_all(&w);
	put_before(&w, window);
	if (!w.err && (fflush(out) || ferror(out)))
		w.err = -EIO;
	buffer_free(&w.framed);
	buffer_free(&w.packet);
	buffer_free(&w.message);
	buffer_free(&w.inner);
	return w.err ?: t->event.err;
}
