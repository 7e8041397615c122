// SPDX-License-Identifier: Apache-2.0
/*
 * The sender thread: each table's batches in their order, the oldest of all tables first, until
 * the sink has taken or refused them. What the sink's verdicts mean for the queue is decided here.
 */
#include "pipeline/deliver.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "pipeline/queue.h"
#include "pipeline/retry.h"
#include "probe/clock.h"

/* So many refused ones in a row are no single bad rows: what is refused then is not cut again. */
enum { REFUSED_MAX = 32, REFUSED_TEXT_MAX = 128 << 20 };

/* ---- verdicts; lock held unless it says otherwise ---- */

/* Lock not held. */
static void finish_batch(struct pipeline *p, struct table_queue *q, struct batch *batch,
			 uint64_t *counter, bool set_aside)
{
	pthread_mutex_lock(&p->lock);
	queue_settle(p, q, batch, counter);
	pthread_mutex_unlock(&p->lock);
	if (batch->disk_bytes && set_aside)
		spool_set_aside(p->spool, batch, q->name);
	else if (batch->disk_bytes)
		spool_remove(p->spool, batch, q->name);
	batch_free(batch);
	pthread_mutex_lock(&p->lock);
}

static void corrupt(struct pipeline *p, struct table_queue *q, struct batch *batch,
		    const struct why *why)
{
	log_error("%s: a spooled batch of %llu rows is set aside: %s", q->name,
		  (unsigned long long)batch->rows, why->text);
	p->failure = *why;
	p->corrupt_files++;
	pthread_mutex_unlock(&p->lock);
	finish_batch(p, q, batch, &q->counts.dropped_corrupt, true);
}

/* Those of the first rows that the sink has taken before it gave the batch up. */
static void count_taken(struct table_queue *q, struct batch *batch, uint64_t rows)
{
	batch->rows -= rows;
	q->counts.queued -= rows;
	q->counts.inserted += rows;
}

static void put_back(struct pipeline *p, struct table_queue *q, struct batch *batch,
		     enum send_result result, const struct send_reply *reply)
{
	p->failed_since_stop |= p->stopping;
	batch->state = BATCH_READY;
	if (batch->disk_bytes) {
		batch_unload(batch);
		queue_update_memory(p, batch);
	}
	if (result == SEND_RETRY_ALL)
		return; /* the sink itself says when */
	q->retry_wait_ns = retry_wait(q->retry_wait_ns, result);
	q->retry_at_ns = clock_monotonic_ns() +
			 retry_jitter(q->retry_wait_ns, reply->retry_after_ns);
}

static void park(struct pipeline *p, struct table_queue *q, struct batch *batch,
		 const struct why *why)
{
	struct buffer rows = { 0 };

	q->refused++;
	pthread_mutex_unlock(&p->lock);
	log_error("%s: dropping %llu rows: %s", q->name, (unsigned long long)batch->rows,
		  why->text);
	if (p->spool && batch->token && !batch_rows_text(batch, REFUSED_TEXT_MAX, &rows))
		spool_park(p->spool, q->name, why->text, &rows);
	buffer_free(&rows);
	finish_batch(p, q, batch, &q->counts.dropped_refused, false);
}

/* Lock not held. The halves of a spooled batch are in the spool, or it is not cut. */
static int put_halves(struct pipeline *p, struct table_queue *q, const struct batch *whole,
		      struct batch *halves[2], struct why *why)
{
	int err = 0;

	if (!whole->disk_bytes)
		return 0;
	for (int i = 0; !err && i < 2; i++)
		err = spool_put(p->spool, halves[i], q->name, true, why);
	if (!err)
		err = spool_replace(p->spool, whole, q->name, why);
	for (int i = 0; err && i < 2; i++) {
		if (halves[i]
			    ->disk_bytes) /* what stays is no batch as long as the whole is there */
			spool_remove(p->spool, halves[i], q->name);
	}
	return err;
}

/* Lock held. */
static void cut(struct pipeline *p, struct table_queue *q, struct batch *batch, bool by_days,
		struct send_reply *reply)
{
	struct batch *halves[2];
	struct why why;
	int err;

	if (!batch->token || batch->rows < 2 || (!by_days && q->refused >= REFUSED_MAX)) {
		park(p, q, batch, &reply->why);
		return;
	}
	pthread_mutex_unlock(&p->lock);
	err = batch_split(batch, q->name, by_days, halves);
	if (err)
		why_fail(&why, -err, "cannot cut it: %s", strerror(-err));
	if (!err) {
		err = put_halves(p, q, batch, halves, &why);
		for (int i = 0; err && i < 2; i++)
			batch_free(halves[i]);
	}
	pthread_mutex_lock(&p->lock);
	if (err == -EBADMSG) {
		corrupt(p, q, batch, &why);
	} else if (err == -ENODATA) {
		park(p, q, batch, &reply->why);
	} else if (err) {
		put_back(p, q, batch, SEND_RETRY, reply);
	} else {
		queue_replace(p, q, batch, halves);
		batch_free(batch);
	}
}

static void accepted(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	bool retried = false;

	q->retry_wait_ns = q->retry_at_ns = 0;
	q->refused = 0;
	for (size_t i = 0; i < p->n_queues; i++)
		retried |= p->queues[i].retry_wait_ns != 0;
	p->delivery_failing = retried;
	q->counts.bytes += batch->body.len;
	pthread_mutex_unlock(&p->lock);
	if (!retried)
		complain_over(&p->send_complaint, "rows are accepted again");
	finish_batch(p, q, batch, &q->counts.inserted, false);
}

static void decide(struct pipeline *p, struct table_queue *q, struct batch *batch,
		   enum send_result result, struct send_reply *reply)
{
	/* what went wrong before says more than that there was no time left */
	if (result != SEND_OK && (result != SEND_CANCELLED || !p->failure.text[0]))
		p->failure = reply->why;
	switch (result) {
	case SEND_OK:
		accepted(p, q, batch);
		break;
	case SEND_RETRY:
	case SEND_RETRY_ALL:
	case SEND_RETRY_SLOW:
		put_back(p, q, batch, result, reply);
		p->delivery_failing = true;
		pthread_mutex_unlock(&p->lock);
		complain(&p->send_complaint, "%s: keeping rows, will try again: %s", q->name,
			 reply->why.text);
		pthread_mutex_lock(&p->lock);
		break;
	case SEND_SPLIT_DAYS:
	case SEND_REFUSED:
		cut(p, q, batch, result == SEND_SPLIT_DAYS, reply);
		break;
	case SEND_CANCELLED:
		count_taken(q, batch, reply->rows_taken);
		put_back(p, q, batch, SEND_RETRY, reply);
		break;
	case SEND_BROKEN:
		p->broken = reply->why;
		count_taken(q, batch, reply->rows_taken);
		park(p, q, batch, &reply->why);
		break;
	}
}

/* ---- the thread ---- */

/* Lock held, and again on return. */
static void send_first(struct pipeline *p, struct table_queue *q)
{
	struct batch *batch = q->first;
	struct send_reply reply = { 0 };
	enum send_result result;
	int err = 0;

	batch->state = BATCH_BUSY;
	if (batch->attempts++)
		q->counts.retries++;
	pthread_mutex_unlock(&p->lock);
	if (batch->disk_bytes)
		err = spool_load(p->spool, batch, q->name, &reply.why);
	pthread_mutex_lock(&p->lock);
	queue_update_memory(p, batch);
	if (err == -EBADMSG) {
		corrupt(p, q, batch, &reply.why);
		return;
	}
	if (err) {
		decide(p, q, batch, SEND_RETRY, &reply);
		return;
	}
	pthread_mutex_unlock(&p->lock);
	result = p->sink->send(p->sink, batch, &reply);
	pthread_mutex_lock(&p->lock);
	decide(p, q, batch, result, &reply);
}

/* Nothing can be sent now. What is in the spool by then may stay there. */
static bool may_end(const struct pipeline *p)
{
	bool empty = true, spooled = true;

	if (!p->stopping || p->writer_runs)
		return false;
	for (size_t i = 0; i < p->n_queues; i++) {
		const struct table_queue *q = &p->queues[i];

		empty &= !q->first;
		spooled &= q->counts.queued == q->counts.spooled;
	}
	return empty || (spooled && p->failed_since_stop);
}

void *sender_main(void *arg)
{
	struct pipeline *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->given_up) {
		uint64_t now = clock_monotonic_ns(), wake_ns, ready_ns = 0;
		struct table_queue *q = queue_ready(p, now, &wake_ns);
		struct timespec until;

		if (q && p->sink->ready_at && (!p->stopping || p->failed_since_stop))
			ready_ns = p->sink->ready_at(p->sink);
		if (q && ready_ns <= now) {
			send_first(p, q);
			continue;
		}
		if (may_end(p))
			break;
		if (q && ready_ns < wake_ns)
			wake_ns = ready_ns;
		until = (struct timespec){ .tv_sec = (time_t)(wake_ns / NSEC_PER_SEC),
					   .tv_nsec = (long)(wake_ns % NSEC_PER_SEC) };
		pthread_cond_timedwait(&p->changed, &p->lock, &until);
	}
	p->sender_runs = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- life ---- */

/* Names this run of this agent among all, for ever: host, boot, and 64 bits of chance. */
static void make_origin(char *buf, size_t size)
{
	uint64_t chance = 0;
	char host[64] = "", boot_id[9] = "";
	AUTO_FCLOSE FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	gethostname(host, sizeof(host) - 1);
	if (!f || !fgets(boot_id, sizeof(boot_id), f))
		boot_id[0] = '\0';
	if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != sizeof(chance))
		chance = clock_wall_us(clock_monotonic_ns()) << 22 | (uint64_t)getpid();
	snprintf(buf, size, "%s-%s-%016llx", host, boot_id, (unsigned long long)chance);
}

static int start_thread(pthread_t *thread, bool *runs, void *(*main)(void *), struct pipeline *p,
			const char *name, struct why *why)
{
	int err; /* positive errno */

	*runs = true;
	err = pthread_create(thread, NULL, main, p);
	if (!err)
		return 0;
	*runs = false;
	return why_fail(why, err, "cannot start the %s thread: %s", name, strerror(err));
}

int deliver_start(struct pipeline *p, struct why *why)
{
	int err;

	make_origin(p->origin, sizeof(p->origin));
	if (p->sink->statement) {
		err = start_thread(&p->writer, &p->writer_runs, writer_main, p, "writer", why);
		if (err)
			return err;
		p->writer_started = true;
	}
	err = start_thread(&p->sender, &p->sender_runs, sender_main, p, "sender", why);
	if (!err)
		return 0;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->writer_started)
		pthread_join(p->writer, NULL);
	return err;
}

void deliver_stop(struct pipeline *p, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(deadline_ns % NSEC_PER_SEC) };

	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	for (size_t i = 0; i < p->n_queues; i++)
		p->queues[i].retry_at_ns = 0;
	pthread_cond_broadcast(&p->changed);
	while (p->sender_runs && pthread_cond_timedwait(&p->changed, &p->lock, &until) != ETIMEDOUT)
		;
	p->given_up = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->sink->cancel)
		p->sink->cancel(p->sink);
	pthread_join(p->sender, NULL);
	if (p->writer_started)
		pthread_join(p->writer, NULL);
}
