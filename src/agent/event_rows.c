// SPDX-License-Identifier: Apache-2.0
/* Makes rows of events. See event_rows.h. */
#include "agent/event_rows.h"

#include <poll.h>
#include <string.h>

#include "agent/agent_tables.h"
#include "rows/enrich.h"
#include "base/clock.h"
#include "process/processes.h"
#include "workers/readers.h"

enum { MAX_WAITING_BYTES = 1 << 20 };
static const uint64_t FINISH_NS = NSEC_PER_SEC / 2;

/* Input of a row, kept to make the row again after look-ups. */
struct source {
	struct running_tracker *running;
	const void *event;
	size_t size;
	struct tracker_row own; /* .row not NULL: a row made by the tracker, no event */
};

struct waiting {
	struct waiting *next;
	uint64_t since_round;
	uint32_t waits_for;
	struct source source; /* in `bytes` */
	_Alignas(16) char bytes[];
};

void rows_start(struct rows *rows, struct tracker_set *set, struct pipeline *pipeline)
{
	*rows = (struct rows){ .set = set, .pipeline = pipeline };
	rows->last = &rows->first;
	for (size_t i = 0; i < set->n; i++) {
		struct running_tracker *running = &set->items[i];
		const struct tracker *tracker = running->tracker;

		running->tables[0] = pipeline_table(pipeline, &tracker->table);
		if (tracker->second_table)
			running->tables[1] = pipeline_table(pipeline, tracker->second_table);
	}
}

/* ---- making rows ---- */

/* `table`: 0 the tracker's first, 1 its second. */
static void send_row(struct rows *rows, struct running_tracker *running, size_t table,
		     const void *row, const struct row_context *context)
{
	struct rows_lacking *l = &rows->lacking[running->tables[table]];
	const struct row_common *common = row;
	/* events of interpreter probes come from a Python, even an unknown process */
	bool is_python = tracker_attaches(running->tracker);

	l->gone += context->gone;
	l->unread += context->unread;
	l->unnamed += context->unnamed || (is_python && !common->thread_name[0]);
	running->rows++;
	pipeline_add(rows->pipeline, running->tables[table], row);
}

/* See make_row(). */
static uint32_t make_of_event(struct rows *rows, const struct source *source, bool now)
{
	const struct tracker *tracker = source->running->tracker;
	const char *event = source->event;
	struct row_context context = { 0 };
	_Alignas(16) char row[TRACKER_ROW_MAX];

	memset(row, 0, tracker->row_size);
	memcpy(row + tracker->event_offset, event, tracker->event_size);
	enrich_event(&context, source->event, (struct row_common *)row);
	if (tracker->take_extra)
		tracker->take_extra(row, event + tracker->event_size,
				    source->size - tracker->event_size, &context);
	if (tracker->complete && (now || !context.waits_for))
		tracker->complete(row, &context);
	if (context.waits_for && !now)
		return context.waits_for;
	source->running->event_rows++;
	send_row(rows, source->running, tracker->table_of ? tracker->table_of(row) : 0, row,
		 &context);
	return 0;
}

/* 0: sent; `now`: always, with placeholders. Otherwise the host pid of a pending look-up. */
static uint32_t make_row(struct rows *rows, const struct source *source, bool now)
{
	const struct tracker_row *own = &source->own;
	struct row_context context = { 0 };

	if (!own->row)
		return make_of_event(rows, source, now);
	if (own->fill)
		own->fill(own->row, &context);
	if (context.waits_for && !now)
		return context.waits_for;
	send_row(rows, source->running, own->table, own->row, &context);
	return 0;
}

/* ---- deferred rows ---- */

static struct waiting *keep_waiting(const struct source *source, uint32_t waits_for)
{
	size_t size = source->own.row ? source->own.size : source->size;
	struct waiting *w = malloc(sizeof(*w) + size);

	if (!w)
		return NULL;
	*w = (struct waiting){ .since_round = readers_rounds(),
			       .waits_for = waits_for,
			       .source = *source };
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

static void remove_at(struct rows *rows, struct waiting **at)
{
	struct waiting *w = *at;

	*at = w->next;
	if (!w->next)
		rows->last = at;
	rows->waiting_bytes -= bytes_of(w);
	free(w);
}

static void make_or_wait(struct rows *rows, const struct source *source)
{
	uint32_t waits_for = make_row(rows, source, false);
	struct waiting *w = waits_for ? keep_waiting(source, waits_for) : NULL;

	if (!w) {
		if (waits_for)
			make_row(rows, source, true);
		return;
	}
	rows->waiting_bytes += bytes_of(w);
	*rows->last = w;
	rows->last = &w->next;
	while (rows->waiting_bytes > MAX_WAITING_BYTES) {
		make_row(rows, &rows->first->source, true);
		remove_at(rows, &rows->first);
	}
}

static void note_answer(void *context, uint32_t host_pid)
{
	struct rows *rows = context;
	size_t n = rows->n_answered;

	if (n && rows->answered_pids[(n - 1) % ROWS_ANSWERED_MAX] == host_pid)
		return;
	rows->answered_pids[n % ROWS_ANSWERED_MAX] = host_pid;
	rows->n_answered++;
}

static bool is_answered(const struct rows *rows, const struct waiting *w)
{
	for (size_t i = 0; i < rows->n_answered && rows->n_answered <= ROWS_ANSWERED_MAX; i++) {
		if (rows->answered_pids[i] == w->waits_for)
			return true;
	}
	return rows->n_answered > ROWS_ANSWERED_MAX;
}

/* `all`: also rows with pending look-ups. */
static void send_waiting(struct rows *rows, bool all)
{
	readers_complete(note_answer, rows);
	for (struct waiting **at = &rows->first; *at;) {
		struct waiting *w = *at;
		bool enough = all || readers_rounds() > w->since_round + READERS_PATIENCE;

		if (enough || is_answered(rows, w))
			w->waits_for = make_row(rows, &w->source, enough);
		if (w->waits_for)
			at = &w->next;
		else
			remove_at(rows, at);
	}
	rows->n_answered = 0;
}

void rows_tick(struct rows *rows)
{
	send_waiting(rows, false);
}

void rows_finish(struct rows *rows)
{
	uint64_t until_ns = clock_monotonic_ns() + FINISH_NS;

	while (rows->first && readers_busy() && clock_monotonic_ns() < until_ns) {
		struct pollfd fd = { .fd = readers_fd(), .events = POLLIN };

		poll(&fd, 1, 10);
		send_waiting(rows, false);
	}
	send_waiting(rows, true);
}

/* ---- sources of rows ---- */

/* Interpreter probes fire in all processes using the file, refused processes included, see
 * processes.h.
 */
static bool is_of_refused(const struct tracker *tracker, const void *event)
{
	const struct process *process =
		tracker_attaches(tracker)
			? processes_find(((const struct event_header *)event)->host_pid)
			: NULL;

	return process && !process->file.binary;
}

void rows_on_event(void *context, struct running_tracker *running, const void *event, size_t size)
{
	struct rows *rows = context;

	if (is_of_refused(running->tracker, event))
		running->of_refused++;
	else
		make_or_wait(rows,
			     &(struct source){ .running = running, .event = event, .size = size });
}

void rows_add(struct rows *rows, size_t index, const struct tracker_row *row)
{
	struct running_tracker *running = &rows->set->items[index];

	if (row->table == 0)
		running->own_rows++;
	make_or_wait(rows, &(struct source){ .running = running, .own = *row });
}
