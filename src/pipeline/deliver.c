// SPDX-License-Identifier: Apache-2.0
/*
 * The sender thread: sends the batches of each table in order, the oldest of all tables first,
 * until the sink accepts or refuses them. Applies the sink's results to the queue.
 */
#include "pipeline/deliver.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/util.h"
#include "pipeline/queue.h"
#include "pipeline/sink/retry.h"

enum { REFUSED_TEXT_MAX = 128 << 20 };

/* Of the time of a stop, for what follows the end of the threads. */
static const uint64_t END_RESERVE_NS = 1500 * NSEC_PER_MSEC;
static const uint64_t CANCEL_NS = NSEC_PER_SEC; /* a cancelled request may take so long */

/*
 * A batch with an unknown outcome is split after this many refusals by the server of that attempt,
 * or by any servers: a refusal now implies a refusal then, unless the table was changed.
 */
enum { DOUBT_REFUSALS_THERE = 3, DOUBT_REFUSALS = 16 };
static const uint64_t ANY_SERVER = UINT64_MAX;

/*
 * ---- results of a send ----
 *
 * The lock is held on entry and on return; log lines and disk accesses release it.
 */

static void finish_batch(struct pipeline *p, struct table_queue *q, struct batch *batch,
			 uint64_t *counter, bool quarantine)
{
	queue_remove(p, q, batch, counter);
	pthread_mutex_unlock(&p->lock);
	if (batch->disk_bytes && quarantine)
		spool_quarantine(p->spool, batch, q->name);
	else if (batch->disk_bytes)
		spool_remove(p->spool, batch, q->name);
	batch_free(batch);
	pthread_mutex_lock(&p->lock);
}

static void quarantine_corrupt(struct pipeline *p, struct table_queue *q, struct batch *batch,
			       const struct why *why)
{
	log_error("%s: a spooled batch of %llu row%s is set aside: %s", q->name,
		  (unsigned long long)batch->rows, plural(batch->rows), why->text);
	p->failure = *why;
	p->corrupt_files++;
	finish_batch(p, q, batch, &q->counts.dropped_corrupt, true);
}

/* Counts the first rows, accepted by the sink before the failure. */
static void count_accepted_rows(struct table_queue *q, struct batch *batch, uint64_t rows)
{
	batch->rows -= rows;
	q->counts.queued -= rows;
	q->counts.inserted += rows;
}

static void requeue(struct pipeline *p, struct table_queue *q, struct batch *batch,
		    enum send_result result, const struct send_reply *reply)
{
	p->failed_since_stop |= p->stopping;
	batch->state = BATCH_READY;
	if (batch->disk_bytes) {
		batch_unload(batch);
		queue_update_memory(p, batch);
	}
	if (result == SEND_RETRY_ALL)
		return; /* ready_at() of the sink decides */
	q->retry_wait_ns = retry_wait(q->retry_wait_ns, result);
	q->retry_at_ns = clock_monotonic_ns() +
			 retry_jitter(q->retry_wait_ns, reply->retry_after_ns);
}

static void dead_letter(struct pipeline *p, struct table_queue *q, struct batch *batch,
			const struct why *why)
{
	struct buffer rows = { 0 };

	pthread_mutex_unlock(&p->lock);
	log_error("%s: dropping %llu row%s: %s", q->name, (unsigned long long)batch->rows,
		  plural(batch->rows), why->text);
	if (p->spool && batch->token && !batch_rows_text(batch, REFUSED_TEXT_MAX, &rows))
		spool_dead_letter(p->spool, q->name, why->text, &rows);
	buffer_free(&rows);
	pthread_mutex_lock(&p->lock);
	finish_batch(p, q, batch, &q->counts.dropped_refused, false);
}

/* Without the lock. Halves of a spooled batch are written to the spool; on an error the batch is
 * not split. */
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
		if (halves[i]->disk_bytes) /* halves are ignored while the whole batch exists */
			spool_remove(p->spool, halves[i], q->name);
	}
	return err;
}

static void split_batch(struct pipeline *p, struct table_queue *q, struct batch *batch,
			bool by_days, struct send_reply *reply)
{
	struct batch *halves[2];
	struct why why;
	int err;

	pthread_mutex_unlock(&p->lock);
	err = batch_split(batch, q->name, by_days, halves);
	if (err)
		why_fail(&why, -err, "cannot split the batch: %s", strerror(-err));
	if (!err) {
		err = put_halves(p, q, batch, halves, &why);
		for (int i = 0; err && i < 2; i++)
			batch_free(halves[i]);
	}
	pthread_mutex_lock(&p->lock);
	if (err == -EBADMSG) {
		quarantine_corrupt(p, q, batch, &why);
	} else if (err == -ENODATA) {
		dead_letter(p, q, batch, &reply->why);
	} else if (err) {
		requeue(p, q, batch, SEND_RETRY, reply);
	} else {
		for (int i = 0; i < 2; i++) {
			halves[i]->refused = true;
			halves[i]->accepted_before = q->accepted;
		}
		queue_replace(p, q, batch, halves);
		batch_free(batch);
	}
}

static void retry_later(struct pipeline *p, struct table_queue *q, struct batch *batch,
			enum send_result result, const struct send_reply *reply)
{
	requeue(p, q, batch, result, reply);
	p->delivery_failing = true;
	pthread_mutex_unlock(&p->lock);
	log_ratelimited(&p->send_log_limit, "%s: keeping rows, will try again: %s", q->name,
			reply->why.text);
	pthread_mutex_lock(&p->lock);
}

/*
 * A refused single row is bad if the table accepted other rows in the same time; otherwise the
 * table may be wrong (other column types). The row waits, in the spool if possible.
 */
static void handle_refused_row(struct pipeline *p, struct table_queue *q, struct batch *batch,
			       struct send_reply *reply)
{
	if ((batch->refused && q->accepted > batch->accepted_before) || !batch->token ||
	    (p->stopping && !p->spool)) {
		dead_letter(p, q, batch, &reply->why);
		return;
	}
	if (!batch->refused)
		batch->accepted_before = q->accepted;
	batch->refused = true;
	p->failed_since_stop |= p->stopping;
	batch->state = BATCH_READY;
	if (batch->disk_bytes) {
		batch_unload(batch);
		queue_update_memory(p, batch);
	}
	batch->retry_wait_ns = retry_wait(batch->retry_wait_ns, SEND_RETRY_SLOW);
	queue_quarantine(q, batch, clock_monotonic_ns() + retry_jitter(batch->retry_wait_ns, 0));
}

/* Whether a batch with an unknown outcome has to be sent again unsplit. */
static bool in_doubt(struct batch *batch, const struct send_reply *reply)
{
	/* of an earlier run: any server may have received the batch */
	if (batch->recovered && !batch->doubt_server)
		batch->doubt_server = reply->only_server ? reply->server : ANY_SERVER;
	if (!batch->doubt_server)
		return false;
	batch->doubt_refusals++;
	batch->doubt_refusals_there += reply->server == batch->doubt_server;
	return batch->doubt_refusals_there < DOUBT_REFUSALS_THERE &&
	       batch->doubt_refusals < DOUBT_REFUSALS;
}

static void handle_refused(struct pipeline *p, struct table_queue *q, struct batch *batch,
			   bool by_days, struct send_reply *reply)
{
	if (in_doubt(batch, reply))
		retry_later(p, q, batch, SEND_RETRY, reply);
	else if (by_days && batch->rows > 1)
		split_batch(p, q, batch, true, reply);
	else if (queue_refuses_all(q))
		retry_later(p, q, batch, SEND_RETRY_SLOW, reply);
	else if (!batch->token || batch->rows < 2)
		handle_refused_row(p, q, batch, reply);
	else
		split_batch(p, q, batch, false, reply);
}

static void handle_accepted(struct pipeline *p, struct table_queue *q, struct batch *batch,
			    size_t columns_left_out)
{
	bool retried = false;

	q->retry_wait_ns = q->retry_at_ns = 0;
	queue_accepted(q);
	for (size_t i = 0; i < p->n_queues; i++)
		retried |= p->queues[i].retry_wait_ns != 0;
	p->delivery_failing = retried;
	q->counts.bytes += batch->body.len;
	q->counts.columns_left_out = columns_left_out;
	pthread_mutex_unlock(&p->lock);
	if (!retried)
		log_ratelimited_end(&p->send_log_limit, "rows are accepted again");
	pthread_mutex_lock(&p->lock);
	finish_batch(p, q, batch, &q->counts.inserted, false);
}

static void apply_result(struct pipeline *p, struct table_queue *q, struct batch *batch,
			 enum send_result result, struct send_reply *reply)
{
	/* the earlier failure explains more than the expired deadline */
	if (reply->unknown && reply->server) {
		batch->doubt_server = batch->doubt_server && batch->doubt_server != reply->server
					      ? ANY_SERVER
					      : reply->server;
		batch->doubt_refusals = batch->doubt_refusals_there = 0;
	}
	if (result != SEND_OK && (result != SEND_CANCELLED || !p->failure.text[0]))
		p->failure = reply->why;
	switch (result) {
	case SEND_OK:
		handle_accepted(p, q, batch, reply->columns_left_out);
		break;
	case SEND_RETRY:
	case SEND_RETRY_ALL:
	case SEND_RETRY_SLOW:
		retry_later(p, q, batch, result, reply);
		break;
	case SEND_SPLIT_DAYS:
	case SEND_REFUSED:
		handle_refused(p, q, batch, result == SEND_SPLIT_DAYS, reply);
		break;
	case SEND_CANCELLED:
		count_accepted_rows(q, batch, reply->rows_taken);
		requeue(p, q, batch, SEND_RETRY, reply);
		break;
	case SEND_BROKEN:
		p->broken = reply->why;
		count_accepted_rows(q, batch, reply->rows_taken);
		dead_letter(p, q, batch, &reply->why);
		break;
	}
}

/* ---- the thread ---- */

/* Lock held, and again on return. */
static void send_batch(struct pipeline *p, struct table_queue *q, struct batch *batch)
{
	struct send_reply reply = { 0 };
	enum send_result result;
	int err = 0;

	batch->state = BATCH_BUSY;
	if (batch->attempts++)
		q->counts.retries++;
	pthread_mutex_unlock(&p->lock);
	if (batch->disk_bytes && !batch_is_loaded(batch))
		err = spool_load(p->spool, batch, q->name, &reply.why);
	pthread_mutex_lock(&p->lock);
	queue_update_memory(p, batch);
	if (err == -EBADMSG) {
		quarantine_corrupt(p, q, batch, &reply.why);
		return;
	}
	if (err) {
		apply_result(p, q, batch, SEND_RETRY, &reply);
		return;
	}
	pthread_mutex_unlock(&p->lock);
	result = p->sink->send(p->sink, batch, &reply);
	pthread_mutex_lock(&p->lock);
	apply_result(p, q, batch, result, &reply);
}

/* Nothing can be sent now; spooled batches may stay in the spool. */
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
		struct table_queue *q;
		struct batch *batch = queue_ready(p, now, &q, &wake_ns);
		struct timespec until;

		if (batch && p->sink->ready_at && (!p->stopping || p->failed_since_stop))
			ready_ns = p->sink->ready_at(p->sink);
		if (batch && ready_ns <= now) {
			send_batch(p, q, batch);
			continue;
		}
		if (may_end(p))
			break;
		if (batch && ready_ns < wake_ns)
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

/* ---- start and stop ---- */

/* Unique name of this run: host, boot id, 64 random bits. */
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

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NSEC_PER_SEC),
				  .tv_nsec = (long)(ns % NSEC_PER_SEC) };
}

/* Whether both threads end in the time that is left of the stop's. */
static bool threads_end(struct pipeline *p)
{
	uint64_t left_ns = stop_left_ns(END_RESERVE_NS);
	const struct timespec until = time_of(clock_monotonic_ns() +
					      (left_ns > CANCEL_NS ? left_ns : CANCEL_NS));
	bool run;

	pthread_mutex_lock(&p->lock);
	while ((p->sender_runs || p->writer_runs) &&
	       pthread_cond_timedwait(&p->changed, &p->lock, &until) != ETIMEDOUT)
		;
	run = p->sender_runs || p->writer_runs;
	pthread_mutex_unlock(&p->lock);
	return !run;
}

bool deliver_stop(struct pipeline *p, uint64_t deadline_ns)
{
	const struct timespec until = time_of(deadline_ns);

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
	if (!threads_end(p)) {
		log_error("%s does not return from a call: the disk of the spool may not answer",
			  p->writer_runs ? "the writer" : "the sender");
		return false;
	}
	pthread_join(p->sender, NULL);
	if (p->writer_started)
		pthread_join(p->writer, NULL);
	return true;
}
