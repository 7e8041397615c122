// SPDX-License-Identifier: Apache-2.0
/* Lists of closed batches, one per table. See queue.h. */
#include "pipeline/queue.h"

#include <string.h>

#include "base/clock.h"

/* This many quarantined rows and none accepted: not single bad rows. */
enum { QUARANTINED_MAX = 32 };

struct table_queue *queue_find(struct pipeline *p, const char *table)
{
	for (size_t i = 0; i < p->n_queues; i++) {
		if (!strcmp(p->queues[i].name, table))
			return &p->queues[i];
	}
	return NULL;
}

static void set_memory(struct pipeline *p, uint64_t bytes)
{
	__atomic_store_n(&p->memory_bytes, bytes, __ATOMIC_RELAXED);
}

static void count_closed(struct table_queue *q, int change)
{
	__atomic_store_n(&q->n_closed, q->n_closed + (uint64_t)(int64_t)change, __ATOMIC_RELAXED);
}

void queue_update_memory(struct pipeline *p, struct batch *batch)
{
	size_t now = batch_memory(batch);

	set_memory(p, p->memory_bytes + now - batch->counted_memory);
	batch->counted_memory = now;
}

void queue_spooled(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	q->counts.spooled += batch->rows;
	p->spool_bytes += batch->disk_bytes;
	p->spool_files++;
}

void queue_append(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	batch->next = NULL;
	*q->last = batch;
	q->last = &batch->next;
	count_closed(q, 1);
	q->counts.queued += batch->rows;
	if (batch->state == BATCH_FRESH && !q->fresh)
		q->fresh = batch;
	queue_update_memory(p, batch);
}

/* The list's link to the batch. */
static struct batch **find_link(struct table_queue *q, const struct batch *batch)
{
	struct batch **at = &q->first;

	while (*at != batch)
		at = &(*at)->next;
	return at;
}

static void uncharge_batch(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	q->n_quarantined -= batch->quarantined;
	batch->quarantined = false;
	set_memory(p, p->memory_bytes - batch->counted_memory);
	batch->counted_memory = 0;
	if (batch->disk_bytes) {
		q->counts.spooled -= batch->rows;
		p->spool_bytes -= batch->disk_bytes;
		p->spool_files--;
	}
}

void queue_remove(struct pipeline *p, struct table_queue *q, struct batch *batch, uint64_t *counter)
{
	struct batch **at = find_link(q, batch);

	*at = batch->next;
	if (!*at)
		q->last = at;
	if (q->fresh == batch)
		q->fresh = batch->next;
	count_closed(q, -1);
	uncharge_batch(p, q, batch);
	q->counts.queued -= batch->rows;
	*counter += batch->rows;
	if (!batch->durable)
		ledger_add_durable(p->ledger, (size_t)(q - p->queues), batch->rows, 0);
}

void queue_replace(struct pipeline *p, struct table_queue *q, struct batch *whole,
		   struct batch *halves[2])
{
	struct batch **at = find_link(q, whole);

	*at = halves[0];
	halves[0]->next = halves[1];
	halves[1]->next = whole->next;
	if (!whole->next)
		q->last = &halves[1]->next;
	count_closed(q, 1);
	uncharge_batch(p, q, whole);
	for (int i = 0; i < 2; i++) {
		queue_update_memory(p, halves[i]);
		if (halves[i]->disk_bytes)
			queue_spooled(p, q, halves[i]);
	}
}

struct table_queue *queue_fresh(struct pipeline *p)
{
	struct table_queue *best = NULL;

	for (size_t i = 0; i < p->n_queues; i++) {
		struct table_queue *q = &p->queues[i];

		if (q->fresh && (!best || q->fresh->order < best->fresh->order))
			best = q;
	}
	return best;
}

void queue_quarantine(struct table_queue *q, struct batch *batch, uint64_t retry_at_ns)
{
	q->n_quarantined += !batch->quarantined;
	q->accepted_at_refusal = q->accepted;
	batch->quarantined = true;
	batch->retry_at_ns = retry_at_ns;
}

void queue_accepted(struct table_queue *q)
{
	q->accepted++;
	for (struct batch *b = q->n_quarantined ? q->first : NULL; b; b = b->next)
		b->retry_at_ns = 0;
}

bool queue_refuses_all(const struct table_queue *q)
{
	return q->n_quarantined >= QUARANTINED_MAX && q->accepted == q->accepted_at_refusal;
}

/* Stops at a batch in work, to keep the order. */
static struct batch *next_of(const struct table_queue *q, uint64_t now, uint64_t *wake_ns)
{
	bool newest = queue_refuses_all(q);
	struct batch *found = NULL, *b = q->first;

	for (; b && b->state == BATCH_READY && (newest || !found); b = b->next) {
		if (!b->quarantined || (!newest && b->retry_at_ns <= now))
			found = b;
		else if (b->retry_at_ns > now && b->retry_at_ns < *wake_ns)
			*wake_ns = b->retry_at_ns;
	}
	/* the first quarantined batch also tests whether the table was repaired */
	if (!found && newest && q->first->state == BATCH_READY && q->first->retry_at_ns <= now)
		found = q->first;
	return found;
}

struct batch *queue_ready(struct pipeline *p, uint64_t now, struct table_queue **ret_queue,
			  uint64_t *ret_wake_ns)
{
	struct batch *best = NULL;

	*ret_wake_ns = now + NSEC_PER_SEC;
	for (size_t i = 0; i < p->n_queues; i++) {
		struct table_queue *q = &p->queues[i];
		struct batch *batch;

		if (!q->first)
			continue;
		if (q->retry_at_ns > now) {
			if (q->retry_at_ns < *ret_wake_ns)
				*ret_wake_ns = q->retry_at_ns;
			continue;
		}
		batch = next_of(q, now, ret_wake_ns);
		if (batch && (!best || batch->order < best->order)) {
			best = batch;
			*ret_queue = q;
		}
	}
	return best;
}

static struct batch *first_in_memory(const struct table_queue *q)
{
	struct batch *b = q->first;

	while (b && (b->disk_bytes || b->state == BATCH_BUSY))
		b = b->next;
	return b;
}

bool queue_shed(struct pipeline *p)
{
	struct table_queue *from = NULL;
	struct batch *victim = NULL;

	for (size_t i = 0; i < p->n_queues; i++) {
		struct table_queue *q = &p->queues[i];
		struct batch *b = first_in_memory(q);

		if (b && (!victim || q->shed_rank > from->shed_rank ||
			  (q->shed_rank == from->shed_rank && b->order < victim->order))) {
			victim = b;
			from = q;
		}
	}
	if (!victim)
		return false;
	queue_remove(p, from, victim, &from->counts.dropped_memory);
	batch_free(victim);
	return true;
}

struct batch *queue_oldest_spooled(struct pipeline *p, struct table_queue **ret_queue)
{
	struct batch *oldest = NULL;

	for (size_t i = 0; i < p->n_queues; i++) {
		struct batch *b = p->queues[i].first;

		while (b && (!b->disk_bytes || b->state == BATCH_BUSY))
			b = b->next;
		if (b && (!oldest || b->order < oldest->order)) {
			oldest = b;
			*ret_queue = &p->queues[i];
		}
	}
	return oldest;
}

bool queue_fits_spool(const struct pipeline *p, uint64_t size)
{
	return size <= __atomic_load_n(&p->limits.spool.max_bytes, __ATOMIC_RELAXED);
}

struct batch *queue_unspooled(struct pipeline *p, struct table_queue **ret_queue)
{
	for (size_t i = 0; i < p->n_queues; i++) {
		for (struct batch *b = p->queues[i].first; b; b = b->next) {
			if (!b->disk_bytes && b->state == BATCH_READY &&
			    queue_fits_spool(p, spool_size_of(b))) {
				*ret_queue = &p->queues[i];
				return b;
			}
		}
	}
	return NULL;
}
