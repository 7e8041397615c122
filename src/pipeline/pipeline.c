// SPDX-License-Identifier: Apache-2.0
/* Batches of rows, their bounded queue, and the sender thread. See pipeline.h. */
#include "pipeline/pipeline.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "pipeline/json.h"
#include "probe/clock.h"

enum { RETRY_FIRST_MS = 250, RETRY_LAST_MS = 30000 };

struct table_queue {
	struct batch *open;  /* collector's */
	struct batch *first; /* closed, oldest first; under the lock from here on */
	struct batch **last;
	uint64_t next_sequence;
	uint64_t retry_at_ns; /* after a failure */
	uint64_t retry_wait_ns;
	struct pipeline_counts counts; /* rows: collector's; the rest under the lock */
};

struct pipeline {
	const struct table *const *tables;
	size_t n_tables;
	struct pipeline_limits limits;
	struct sink *sink;
	struct table_queue *queues;

	pthread_t sender;
	bool sender_runs;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC */
	uint64_t queued_bytes;
	bool stopping;
	struct why broken;	    /* the sink is, for good; empty: it is not */
	struct why failure;	    /* the last; sender's until it has ended */
	bool given_up;		    /* past the deadline */
	struct complaint complaint; /* sender's: one, for what fails fails for all tables mostly */
};

static void batch_free(struct batch *batch)
{
	if (batch)
		buffer_free(&batch->body);
	free(batch);
}

/* ---- closing batches: collector ---- */

static void drop_oldest(struct pipeline *p)
{
	struct table_queue *victim = NULL;
	struct batch *batch;

	for (size_t i = 0; i < p->n_tables; i++) {
		struct table_queue *q = &p->queues[i];

		if (q->first && (!victim || q->first->opened_ns < victim->first->opened_ns))
			victim = q;
	}
	if (!victim)
		return;
	batch = victim->first;
	victim->first = batch->next;
	if (!victim->first)
		victim->last = &victim->first;
	p->queued_bytes -= batch->body.len;
	victim->counts.queued -= batch->rows;
	victim->counts.dropped_memory += batch->rows;
	batch_free(batch);
}

static void close_batch(struct pipeline *p, struct table_queue *q)
{
	struct batch *batch = q->open;

	if (!batch)
		return;
	q->open = NULL;
	pthread_mutex_lock(&p->lock);
	while (p->queued_bytes && p->queued_bytes + batch->body.len > p->limits.memory_bytes)
		drop_oldest(p);
	batch->sequence = q->next_sequence++;
	*q->last = batch;
	q->last = &batch->next;
	p->queued_bytes += batch->body.len;
	q->counts.queued += batch->rows;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void pipeline_add(struct pipeline *p, size_t table, const void *row)
{
	struct table_queue *q = &p->queues[table];

	q->counts.rows++;
	if (!q->open) {
		q->open = calloc(1, sizeof(*q->open));
		if (q->open) {
			q->open->table = (uint32_t)table;
			q->open->opened_ns = clock_monotonic_ns();
		}
	}
	if (!q->open || json_append_row(&q->open->body, p->tables[table], row,
					p->sink->rows_name_their_table)) {
		pthread_mutex_lock(&p->lock);
		q->counts.dropped_memory++;
		pthread_mutex_unlock(&p->lock);
		return;
	}
	q->open->rows++;
	if (q->open->rows >= p->limits.batch_rows || q->open->body.len >= p->limits.batch_bytes)
		close_batch(p, q);
}

int pipeline_tick(struct pipeline *p, struct why *why)
{
	uint64_t now = clock_monotonic_ns();
	int err = 0;

	for (size_t i = 0; i < p->n_tables; i++) {
		struct batch *open = p->queues[i].open;

		if (open && now - open->opened_ns >= p->limits.batch_age_ns)
			close_batch(p, &p->queues[i]);
	}
	pthread_mutex_lock(&p->lock);
	if (p->broken.text[0])
		err = why_fail(why, EPIPE, "%s", p->broken.text);
	pthread_mutex_unlock(&p->lock);
	return err;
}

void pipeline_read_counts(struct pipeline *p, size_t table, struct pipeline_counts *ret)
{
	struct table_queue *q = &p->queues[table];

	pthread_mutex_lock(&p->lock);
	*ret = q->counts;
	pthread_mutex_unlock(&p->lock);
	ret->queued += q->open ? q->open->rows : 0;
}

void pipeline_read_state(struct pipeline *p, struct pipeline_state *ret)
{
	uint64_t now = clock_monotonic_ns(), oldest = now;

	*ret = (struct pipeline_state){ 0 };
	pthread_mutex_lock(&p->lock);
	ret->memory_bytes = p->queued_bytes;
	for (size_t i = 0; i < p->n_tables; i++) {
		const struct table_queue *q = &p->queues[i];

		if (q->first && q->first->opened_ns < oldest)
			oldest = q->first->opened_ns;
		ret->delivery_failing |= q->retry_wait_ns != 0;
	}
	ret->oldest_ns = now - oldest;
	pthread_mutex_unlock(&p->lock);
}

/* ---- sending: the sender thread ---- */

/* The table whose oldest batch is the oldest of all that may be tried now. Lock held. */
static struct table_queue *next_queue(struct pipeline *p, uint64_t now, uint64_t *ret_wake_ns)
{
	struct table_queue *best = NULL;

	*ret_wake_ns = now + NSEC_PER_SEC;
	for (size_t i = 0; i < p->n_tables; i++) {
		struct table_queue *q = &p->queues[i];

		if (!q->first)
			continue;
		if (q->retry_at_ns > now && !p->given_up) {
			if (q->retry_at_ns < *ret_wake_ns)
				*ret_wake_ns = q->retry_at_ns;
		} else if (!best || q->first->opened_ns < best->first->opened_ns) {
			best = q;
		}
	}
	return best;
}

static void back_off(struct table_queue *q, uint64_t now)
{
	uint64_t wait = q->retry_wait_ns ? q->retry_wait_ns * 2 : RETRY_FIRST_MS * NSEC_PER_MSEC;

	if (wait > RETRY_LAST_MS * NSEC_PER_MSEC)
		wait = RETRY_LAST_MS * NSEC_PER_MSEC;
	q->retry_wait_ns = wait;
	/* a quarter of jitter: many agents lose and find the same server together */
	q->retry_at_ns = now + wait - wait / 8 + (uint64_t)random() % (wait / 4);
}

static bool anything_is_retried(const struct pipeline *p)
{
	for (size_t i = 0; i < p->n_tables; i++) {
		if (p->queues[i].retry_wait_ns)
			return true;
	}
	return false;
}

static void send_one(struct pipeline *p, struct table_queue *q)
{
	struct batch *batch = q->first;
	const struct table *table = p->tables[batch->table];
	struct why why = { { 0 } };
	enum send_result result;

	/* taken out while unlocked, so that the collector's drop_oldest() cannot free it */
	q->first = batch->next;
	if (!q->first)
		q->last = &q->first;
	if (batch->attempts++)
		q->counts.retries++;
	p->queued_bytes -= batch->body.len;
	pthread_mutex_unlock(&p->lock);
	result = p->sink->send(p->sink, table, batch, &why);
	if (result != SEND_OK)
		p->failure = why;
	if (result == SEND_RETRY)
		complain(&p->complaint, "%s: keeping rows, will try again: %s", table->name,
			 why.text);
	else if (result == SEND_DROP)
		log_error("%s: dropping %llu rows: %s", table->name,
			  (unsigned long long)batch->rows, why.text);
	pthread_mutex_lock(&p->lock);
	if (result == SEND_RETRY) {
		batch->next = q->first;
		q->first = batch;
		if (!batch->next)
			q->last = &batch->next;
		p->queued_bytes += batch->body.len;
		back_off(q, clock_monotonic_ns());
		return;
	}
	q->retry_wait_ns = q->retry_at_ns = 0;
	if (result == SEND_OK && !anything_is_retried(p))
		complain_over(&p->complaint, "rows are accepted again");
	q->counts.queued -= batch->rows;
	if (result == SEND_OK) {
		q->counts.inserted += batch->rows;
		q->counts.bytes += batch->body.len;
	} else {
		q->counts.dropped_refused += batch->rows;
	}
	if (result == SEND_BROKEN)
		p->broken = why;
	batch_free(batch);
}

static void *sender_main(void *arg)
{
	struct pipeline *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->given_up) {
		uint64_t wake_ns, now = clock_monotonic_ns();
		struct table_queue *q = next_queue(p, now, &wake_ns);

		if (q) {
			send_one(p, q);
		} else {
			struct timespec until = { .tv_sec = (time_t)(wake_ns / NSEC_PER_SEC),
						  .tv_nsec = (long)(wake_ns % NSEC_PER_SEC) };
			bool empty = true;

			for (size_t i = 0; i < p->n_tables; i++)
				empty = empty && !p->queues[i].first;
			if (p->stopping && empty)
				break;
			pthread_cond_timedwait(&p->changed, &p->lock, &until);
		}
	}
	p->sender_runs = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- life ---- */

int pipeline_new(const struct table *const *tables, size_t n_tables,
		 const struct pipeline_limits *limits, struct sink *sink,
		 struct pipeline **ret_pipeline, struct why *why)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;
	int err;

	if (p)
		p->queues = calloc(n_tables, sizeof(*p->queues));
	if (!p || !p->queues) {
		free(p);
		return why_fail(why, ENOMEM, "out of memory");
	}
	p->tables = tables;
	p->n_tables = n_tables;
	p->limits = *limits;
	p->sink = sink;
	for (size_t i = 0; i < n_tables; i++)
		p->queues[i].last = &p->queues[i].first;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	p->sender_runs = true;
	err = pthread_create(&p->sender, NULL, sender_main, p); /* positive errno */
	if (err) {
		p->sender_runs = false;
		p->sink = NULL; /* stays the caller's */
		pipeline_free(p);
		return why_fail(why, err, "cannot start the sender thread: %s", strerror(err));
	}
	*ret_pipeline = p;
	return 0;
}

int pipeline_finish(struct pipeline *p, uint64_t deadline_ns, struct why *why)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(deadline_ns % NSEC_PER_SEC) };
	uint64_t undelivered = 0;

	for (size_t i = 0; i < p->n_tables; i++)
		close_batch(p, &p->queues[i]);
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	for (size_t i = 0; i < p->n_tables; i++)
		p->queues[i].retry_at_ns = 0;
	pthread_cond_signal(&p->changed);
	while (p->sender_runs && pthread_cond_timedwait(&p->changed, &p->lock, &until) != ETIMEDOUT)
		;
	p->given_up = true;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->sink->cancel)
		p->sink->cancel(p->sink);
	pthread_join(p->sender, NULL);
	for (size_t i = 0; i < p->n_tables; i++)
		undelivered += p->queues[i].counts.queued + p->queues[i].counts.dropped_memory +
			       p->queues[i].counts.dropped_refused;
	if (!undelivered)
		return 0;
	return why_fail(why, EIO, "%llu rows could not be delivered: %.400s",
			(unsigned long long)undelivered,
			p->failure.text[0] ? p->failure.text : "out of time");
}

void pipeline_free(struct pipeline *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_tables; i++) {
		struct batch *next;

		batch_free(p->queues[i].open);
		for (struct batch *b = p->queues[i].first; b; b = next) {
			next = b->next;
			batch_free(b);
		}
	}
	if (p->sink)
		p->sink->free(p->sink);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->queues);
	free(p);
}
