// SPDX-License-Identifier: Apache-2.0
/* An event becomes a row. See rows.h. */
#include "agent/rows.h"

#include <poll.h>
#include <string.h>

#include "pipeline/enrich.h"
#include "probe/clock.h"
#include "probe/processes.h"
#include "readers.h"

enum { MAX_WAITING_BYTES = 1 << 20, MAX_ANSWERED = 32 };
static const uint64_t FINISH_NS = NSEC_PER_SEC / 2;

/* What a row is made of, once more when there are answers. */
struct source {
	size_t index; /* of the tracker */
	const void *event;
	size_t size;
	struct tracker_row own; /* .row not NULL: a row of its own making, no event */
};

struct waiting {
	struct waiting *next;
	uint64_t since_round;
	uint32_t waits_for;
	struct source source; /* in `bytes` */
	_Alignas(16) char bytes[];
};

static struct tracker_set *set;
static struct pipeline *pipeline;
static struct rows_lacking lacking[2 * MAX_TRACKERS + 2];

static struct waiting *first, **last = &first;
static size_t waiting_bytes;

/* The processes of which something was read since the waiting rows were last looked at. */
static uint32_t answered[MAX_ANSWERED];
static size_t n_answered;

void rows_start(struct tracker_set *of_set, struct pipeline *to)
{
	set = of_set;
	pipeline = to;
}

const struct rows_lacking *rows_lacking(size_t table)
{
	return &lacking[table];
}

/* ---- making ---- */

static size_t pipeline_table(size_t index, size_t table)
{
	return table ? set->items[index].second_table : index;
}

static void send(size_t index, size_t table, const void *row)
{
	struct rows_lacking *l = &lacking[pipeline_table(index, table)];
	const struct row_common *common = row;
	/* what comes of probes in an interpreter is a Python's, also when nothing is known of it */
	bool is_python = set->items[index].tracker->attach_binary;

	l->gone += lookups.gone;
	l->unread += lookups.unread;
	l->unnamed += lookups.unnamed || (is_python && !common->thread_name[0]);
	set->items[index].rows++;
	pipeline_add(pipeline, pipeline_table(index, table), row);
}

/* False, and nothing is sent: there are answers to come. Not with `now`. */
static bool make_of_event(const struct source *source, bool now)
{
	const struct tracker *tracker = set->items[source->index].tracker;
	const char *event = source->event;
	_Alignas(16) char row[TRACKER_ROW_MAX];

	memset(row, 0, tracker->row_size);
	memcpy(row + tracker->event_offset, event, tracker->event_size);
	enrich_event(source->event, (struct row_common *)row);
	if (tracker->take_extra)
		tracker->take_extra(row, event + tracker->event_size,
				    source->size - tracker->event_size);
	if (tracker->complete && (now || !lookups.waits_for))
		tracker->complete(row);
	if (lookups.waits_for && !now)
		return false;
	send(source->index, tracker->table_of ? tracker->table_of(row) : 0, row);
	return true;
}

static bool make(const struct source *source, bool now)
{
	const struct tracker_row *own = &source->own;

	lookups = (struct lookups){ 0 };
	if (!own->row)
		return make_of_event(source, now);
	if (own->fill)
		own->fill(own->row);
	if (lookups.waits_for && !now)
		return false;
	send(source->index, own->table, own->row);
	return true;
}

/* ---- waiting ---- */

static struct waiting *keep(const struct source *source)
{
	size_t size = source->own.row ? source->own.size : source->size;
	struct waiting *w = malloc(sizeof(*w) + size);

	if (!w)
		return NULL;
	*w = (struct waiting){ .since_round = readers_rounds(), .source = *source };
	memcpy(w->bytes, source->own.row ? source->own.row : source->event, size);
	if (source->own.row)
		w->source.own.row = w->bytes;
	else
		w->source.event = w->bytes;
	return w;
}

static size_t bytes_of(const struct waiting *w)
{
	return sizeof(*w) + (w->source.own.row ? w->source.own.size : w->source.size);
}

static void remove_at(struct waiting **at)
{
	struct waiting *w = *at;

	*at = w->next;
	if (!w->next)
		last = at;
	waiting_bytes -= bytes_of(w);
	free(w);
}

static void make_or_wait(const struct source *source)
{
	struct waiting *w;

	if (make(source, false))
		return;
	w = keep(source);
	if (!w) {
		make(source, true);
		return;
	}
	w->waits_for = lookups.waits_for;
	waiting_bytes += bytes_of(w);
	*last = w;
	last = &w->next;
	while (waiting_bytes > MAX_WAITING_BYTES) {
		make(&first->source, true);
		remove_at(&first);
	}
}

static void note_answer(uint32_t host_pid)
{
	if (n_answered && answered[(n_answered - 1) % MAX_ANSWERED] == host_pid)
		return;
	answered[n_answered % MAX_ANSWERED] = host_pid;
	n_answered++;
}

static bool is_answered(const struct waiting *w)
{
	for (size_t i = 0; i < n_answered && n_answered <= MAX_ANSWERED; i++) {
		if (answered[i] == w->waits_for)
			return true;
	}
	return n_answered > MAX_ANSWERED;
}

/* `all`: also those with answers to come. */
static void send_waiting(bool all)
{
	readers_take(note_answer);
	for (struct waiting **at = &first; *at;) {
		struct waiting *w = *at;
		bool enough = all || readers_rounds() > w->since_round + READERS_PATIENCE;

		if ((enough || is_answered(w)) && make(&w->source, enough)) {
			remove_at(at);
		} else {
			if (is_answered(w))
				w->waits_for = lookups.waits_for;
			at = &w->next;
		}
	}
	n_answered = 0;
}

void rows_tick(void)
{
	send_waiting(false);
}

void rows_finish(void)
{
	uint64_t until_ns = clock_monotonic_ns() + FINISH_NS;

	while (first && readers_busy() && clock_monotonic_ns() < until_ns) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 10);
		send_waiting(false);
	}
	send_waiting(true);
}

/* ---- where rows come from ---- */

/* Probes of the interpreter fire in whatever uses its file; some of it is refused, see processes.h.
 */
static bool is_of_refused(const struct tracker *tracker, const void *event)
{
	const struct process *process =
		tracker->attach_binary
			? processes_find(((const struct event_header *)event)->host_pid)
			: NULL;

	return process && !process->file.binary;
}

void rows_on_event(size_t index, const void *event, size_t size, void *context)
{
	(void)context;
	if (is_of_refused(set->items[index].tracker, event))
		set->items[index].of_refused++;
	else
		make_or_wait(&(struct source){ .index = index, .event = event, .size = size });
}

void rows_add(const struct tracker_output *output, const struct tracker_row *row)
{
	if (row->table == 0)
		set->items[output->index].own_rows++;
	make_or_wait(&(struct source){ .index = output->index, .own = *row });
}
