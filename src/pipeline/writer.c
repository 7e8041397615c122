// SPDX-License-Identifier: Apache-2.0
/*
 * The writer thread: compresses and seals closed batches and writes them to the spool, so that
 * neither a slow server nor a slow disk delays the collector. With a full or read-only disk,
 * batches stay in memory within the budget and are written later.
 */
#include <string.h>
#include <time.h>

#include "pipeline/deliver.h"
#include "pipeline/queue.h"
#include "base/clock.h"

/*
 * Drops the oldest files until `size` bytes fit; false: no room. Drops nothing if `size` exceeds
 * the whole spool.
 */
static bool make_spool_room(struct pipeline *p, uint64_t size)
{
	uint64_t dropped = 0;
	bool room = false;

	while (queue_fits_spool(p, size)) {
		struct table_queue *q;
		struct batch *victim = NULL;

		pthread_mutex_lock(&p->lock);
		room = p->spool_bytes + size <= p->limits.spool.max_bytes &&
		       p->spool_files < SPOOL_FILES_MAX;
		if (!room)
			victim = queue_oldest_spooled(p, &q);
		if (victim)
			queue_remove(p, q, victim, &q->counts.dropped_spool);
		pthread_mutex_unlock(&p->lock);
		if (!victim)
			break;
		spool_remove(p->spool, victim, q->name);
		dropped += victim->rows;
		batch_free(victim);
	}
	if (dropped)
		log_ratelimited(
			&p->overflow_log_limit,
			"the spool is full (spool.max_bytes, or %d files): the oldest rows are "
			"dropped, see ebpf_agent",
			SPOOL_FILES_MAX);
	return room;
}

/*
 * Will the sender take the batch next? Then the batch stays in memory as well, to spare reading the
 * file. Lock held.
 */
static bool is_sent_next(const struct pipeline *p, const struct table_queue *q,
			 const struct batch *batch)
{
	enum { OF_MEMORY = 8 };

	return q->first == batch && !q->retry_wait_ns && !p->delivery_failing &&
	       p->memory_bytes <= p->limits.memory_bytes / OF_MEMORY;
}

/* Lock not held; the batch is busy. */
static int put_batch(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	size_t table = (size_t)(q - p->queues);
	uint64_t size = spool_size_of(batch);
	struct why why;
	int err;

	if (!make_spool_room(p, size))
		err = why_fail(&why, ENOSPC,
			       "%s: a batch of %llu bytes has no room in spool.max_bytes: raise "
			       "spool.max_bytes, or lower batch_bytes and batch_rows",
			       q->name, (unsigned long long)size);
	else {
		pthread_mutex_lock(&p->lock);
		ledger_writing(p->ledger, table, batch->order);
		pthread_mutex_unlock(&p->lock);
		err = spool_put(p->spool, batch, q->name, false, &why);
	}
	if (err)
		log_ratelimited(&p->spool_log_limit, "%s; rows are kept in memory", why.text);
	else
		log_ratelimited_end(&p->spool_log_limit, "rows go to the spool again");
	pthread_mutex_lock(&p->lock);
	p->spool_failing = err != 0;
	if (!err) {
		if (!batch->durable)
			ledger_add_durable(p->ledger, table, batch->rows, batch->order);
		batch->durable = true;
		queue_spooled(p, q, batch);
		if (!is_sent_next(p, q, batch))
			batch_unload(batch);
		queue_update_memory(p, batch);
	}
	pthread_mutex_unlock(&p->lock);
	return err;
}

/* Lock held, and again on return. */
static void write_fresh(struct pipeline *p, struct table_queue *q)
{
	struct batch *batch = q->fresh;
	int err;

	batch->state = BATCH_BUSY;
	q->fresh = batch->next;
	pthread_mutex_unlock(&p->lock);
	err = batch_seal(batch, p->origin, q->name, q->insert);
	pthread_mutex_lock(&p->lock);
	if (err) {
		queue_remove(p, q, batch, &q->counts.dropped_memory);
		batch_free(batch);
		return;
	}
	queue_update_memory(p, batch);
	if (p->spool) {
		pthread_mutex_unlock(&p->lock);
		put_batch(p, q, batch);
		pthread_mutex_lock(&p->lock);
	}
	batch->state = BATCH_READY;
	pthread_cond_broadcast(&p->changed);
}

static void drop_expired(struct pipeline *p)
{
	uint64_t dropped = 0;

	for (;;) {
		uint64_t now =
			clock_monotonic_ns(); /* monotonic: a stepped clock does not age rows */
		struct table_queue *q;
		struct batch *oldest;

		pthread_mutex_lock(&p->lock);
		oldest = queue_oldest_spooled(p, &q);
		if (oldest && now - oldest->opened_ns > p->limits.spool.max_age_ns)
			queue_remove(p, q, oldest, &q->counts.dropped_spool);
		else
			oldest = NULL;
		pthread_mutex_unlock(&p->lock);
		if (!oldest)
			break;
		spool_remove(p->spool, oldest, q->name);
		dropped += oldest->rows;
		batch_free(oldest);
	}
	if (dropped)
		log_ratelimited(
			&p->age_log_limit,
			"spool.max_age is reached: the oldest rows are dropped, see ebpf_agent");
}

/* Writes batches from memory to the spool once the disk accepts writes. */
static void catch_up(struct pipeline *p)
{
	int err = 0;

	while (!err) {
		struct table_queue *q;
		struct batch *batch;

		pthread_mutex_lock(&p->lock);
		batch = queue_unspooled(p, &q);
		if (batch)
			batch->state = BATCH_BUSY;
		pthread_mutex_unlock(&p->lock);
		if (!batch)
			break;
		err = put_batch(p, q, batch);
		pthread_mutex_lock(&p->lock);
		batch->state = BATCH_READY;
		pthread_cond_broadcast(&p->changed);
		pthread_mutex_unlock(&p->lock);
	}
}

/* Lock not held. */
static void keep_house(struct pipeline *p, bool last)
{
	if (!p->spool)
		return;
	drop_expired(p);
	catch_up(p);
	spool_sync(p->spool, last);
}

void *writer_main(void *arg)
{
	struct pipeline *p = arg;
	uint64_t next_house_ns = 0;
	bool stopping = false;

	pthread_mutex_lock(&p->lock);
	while (!stopping) {
		uint64_t now = clock_monotonic_ns();
		struct table_queue *q = queue_fresh(p);

		stopping = p->stopping && !q;
		if (stopping || now >= next_house_ns) {
			pthread_mutex_unlock(&p->lock);
			keep_house(p, stopping);
			pthread_mutex_lock(&p->lock);
			next_house_ns = now + NSEC_PER_SEC;
		} else if (q) {
			write_fresh(p, q);
		} else {
			struct timespec until = {
				.tv_sec = (time_t)(next_house_ns / NSEC_PER_SEC),
				.tv_nsec = (long)(next_house_ns % NSEC_PER_SEC),
			};

			pthread_cond_timedwait(&p->changed, &p->lock, &until);
		}
	}
	p->writer_runs = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
