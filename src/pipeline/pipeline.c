// SPDX-License-Identifier: Apache-2.0
/* The pipeline's collector side, start and stop. See pipeline.h; the threads are in deliver.c. */
#include "pipeline/pipeline.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "pipeline/deliver.h"
#include "pipeline/json.h"
#include "pipeline/queue.h"
#include "pipeline/recover.h"
#include "base/clock.h"
#include "base/util.h"

/*
 * While batches of a table are pending, new batches are larger: a long outage makes fewer files and
 * fewer INSERTs afterwards.
 */
enum { BACKLOG_STEP = 16, BACKLOG_MAX_FACTOR = 12 };

/* Text of an open batch that is compressed at once: fits into a core's own cache. */
enum { PACK_BYTES = 128 << 10 };

/* ---- memory ---- */

static uint64_t memory_used(const struct pipeline *p)
{
	return p->open_bytes + __atomic_load_n(&p->memory_bytes, __ATOMIC_RELAXED);
}

static bool over_budget(const struct pipeline *p)
{
	return memory_used(p) > p->limits.memory_bytes;
}

static void drop_open(struct pipeline *p)
{
	struct table_queue *victim = NULL;

	for (size_t i = 0; i < p->n_tables; i++) {
		struct table_queue *q = &p->queues[i];

		if (q->open &&
		    (!victim || q->shed_rank > victim->shed_rank ||
		     (q->shed_rank == victim->shed_rank && q->open_memory > victim->open_memory)))
			victim = q;
	}
	if (!victim)
		return;
	pthread_mutex_lock(&p->lock);
	victim->counts.dropped_memory += victim->open->rows;
	ledger_add_durable(p->ledger, (size_t)(victim - p->queues), victim->open->rows, 0);
	pthread_mutex_unlock(&p->lock);
	p->open_bytes -= victim->open_memory;
	victim->open_memory = 0;
	batch_free(victim->open);
	victim->open = NULL;
}

static void make_room(struct pipeline *p)
{
	bool shed = true;

	pthread_mutex_lock(&p->lock);
	while (shed && over_budget(p))
		shed = queue_shed(p);
	pthread_mutex_unlock(&p->lock);
	if (over_budget(p))
		drop_open(p);
	log_ratelimited(&p->shed_log_limit,
			"memory_bytes is reached: rows are dropped, see ebpf_agent");
}

/* ---- rows into batches ---- */

static void close_batch(struct pipeline *p, struct table_queue *q)
{
	struct batch *batch = q->open;

	if (!batch)
		return;
	q->open = NULL;
	p->open_bytes -= q->open_memory;
	q->open_memory = 0;
	batch->to_us = clock_wall_us(clock_monotonic_ns());
	batch->state = q->insert ? BATCH_FRESH : BATCH_READY;
	pthread_mutex_lock(&p->lock);
	batch->order = p->next_order++;
	queue_append(p, q, batch);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (over_budget(p))
		make_room(p);
	else if (p->shed_log_limit.active && memory_used(p) < p->limits.memory_bytes / 2)
		log_ratelimited_end(&p->shed_log_limit, "there is room in memory again");
}

static bool open_batch(struct table_queue *q)
{
	q->open = batch_new();
	if (!q->open)
		return false;
	q->open->opened_ns = clock_monotonic_ns();
	q->open->from_us = clock_wall_us(q->open->opened_ns);
	return true;
}

/* Appends the row's text; what waits for the writer is compressed in pieces on the way. */
static int append_row(struct pipeline *p, struct table_queue *q, const void *row)
{
	struct batch *batch = q->open;
	size_t before = batch->body.len;

	if (json_append_row(&batch->body, q->table, row, p->sink->rows_name_their_table))
		return -ENOMEM;
	batch->rows++;
	batch->text_bytes += batch->body.len - before;
	if (q->insert && batch->body.len >= PACK_BYTES)
		batch_pack(batch); /* out of memory: all of it later */
	return 0;
}

void pipeline_add(struct pipeline *p, size_t table, const void *row)
{
	struct table_queue *q = &p->queues[table];
	size_t memory;

	q->counts.rows++;
	if (p->sink->add_row) {
		p->sink->add_row(p->sink, q->table, row);
		q->counts.inserted++;
		return;
	}
	ledger_add(p->ledger, table, 1);
	if ((!q->open && !open_batch(q)) || append_row(p, q, row)) {
		pthread_mutex_lock(&p->lock);
		q->counts.dropped_memory++;
		ledger_add_durable(p->ledger, table, 1, 0);
		pthread_mutex_unlock(&p->lock);
		return;
	}
	if (q->open->rows >= p->limits.batch_rows || q->open->text_bytes >= p->limits.batch_bytes) {
		close_batch(p, q);
		return;
	}
	memory = batch_memory(q->open);
	if (memory == q->open_memory)
		return;
	p->open_bytes += memory - q->open_memory;
	q->open_memory = memory;
	if (over_budget(p))
		make_room(p);
}

static uint64_t age_limit(const struct pipeline *p, const struct table_queue *q)
{
	uint64_t factor = 1 + __atomic_load_n(&q->n_closed, __ATOMIC_RELAXED) / BACKLOG_STEP;

	return p->limits.batch_age_ns * (factor < BACKLOG_MAX_FACTOR ? factor : BACKLOG_MAX_FACTOR);
}

int pipeline_tick(struct pipeline *p, struct why *why)
{
	uint64_t now = clock_monotonic_ns();
	int err = 0;

	if (p->sink->tick)
		p->sink->tick(p->sink, now);
	for (size_t i = 0; i < p->n_tables; i++) {
		struct table_queue *q = &p->queues[i];

		if (q->open && now - q->open->opened_ns >= age_limit(p, q))
			close_batch(p, q);
	}
	pthread_mutex_lock(&p->lock);
	if (p->spool && now >= p->ledger_check_ns) {
		recover_ledger(p);
		p->ledger_check_ns = now + NSEC_PER_SEC;
	}
	if (p->broken.text[0])
		err = why_fail(why, EPIPE, "%s", p->broken.text);
	pthread_mutex_unlock(&p->lock);
	return err;
}

/* ---- changes at run time ---- */

void pipeline_change_limits(struct pipeline *p, const struct pipeline_limits *limits)
{
	pthread_mutex_lock(&p->lock);
	p->limits.batch_rows = limits->batch_rows;
	p->limits.batch_bytes = limits->batch_bytes;
	p->limits.batch_age_ns = limits->batch_age_ns;
	p->limits.memory_bytes = limits->memory_bytes;
	__atomic_store_n(&p->limits.spool.max_bytes, limits->spool.max_bytes, __ATOMIC_RELAXED);
	p->limits.spool.max_age_ns = limits->spool.max_age_ns;
	pthread_mutex_unlock(&p->lock);
	if (over_budget(p))
		make_room(p);
}

void pipeline_set_shed_rank(struct pipeline *p, size_t table, unsigned int rank)
{
	pthread_mutex_lock(&p->lock);
	p->queues[table].shed_rank = rank;
	pthread_mutex_unlock(&p->lock);
}

void pipeline_sink_changed(struct pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n_queues; i++)
		p->queues[i].retry_at_ns = 0;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

/* ---- tables ---- */

size_t pipeline_table(const struct pipeline *p, const struct table *table)
{
	size_t i = 0;

	while (p->queues[i].table != table)
		i++;
	return i;
}

/* ---- counters ---- */

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
	uint64_t now = clock_monotonic_ns();

	*ret = (struct pipeline_state){ 0 };
	pthread_mutex_lock(&p->lock);
	ret->memory_bytes = p->open_bytes + p->memory_bytes;
	ret->spool_bytes = p->spool_bytes;
	ret->spool_files = p->spool_files;
	ret->spool_degraded = p->spool_failing;
	ret->corrupt_files = p->corrupt_files;
	ret->delivery_failing = p->delivery_failing;
	for (size_t i = 0; i < p->n_queues; i++) {
		const struct table_queue *q = &p->queues[i];

		if (q->first && now - q->first->opened_ns > ret->oldest_ns)
			ret->oldest_ns = now - q->first->opened_ns;
	}
	pthread_mutex_unlock(&p->lock);
}

/* ---- start and stop ---- */

static int init_queue(struct pipeline *p, struct table_queue *q, const struct table *table)
{
	struct buffer sql = { 0 };

	q->name = table->name;
	q->table = table;
	q->last = &q->first;
	if (p->sink->statement && p->sink->statement(table, &sql)) {
		buffer_free(&sql);
		return -ENOMEM;
	}
	q->insert = sql.data;
	return 0;
}

static int init_queues(struct pipeline *p, const struct table *const *tables, size_t n,
		       struct why *why)
{
	int err = 0;

	/* room for tables found by recover.c */
	p->queues = calloc(n + RECOVER_TABLES_MAX, sizeof(*p->queues));
	if (!p->queues)
		return why_fail(why, ENOMEM, "out of memory");
	p->n_tables = p->n_queues = n;
	for (size_t i = 0; !err && i < n; i++)
		err = init_queue(p, &p->queues[i], tables[i]);
	return err ? why_fail(why, ENOMEM, "out of memory") : 0;
}

int pipeline_new(const struct table *const *tables, size_t n_tables,
		 const struct pipeline_limits *limits, struct sink *sink,
		 struct pipeline **ret_pipeline, struct why *why)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;
	int err;

	if (!p)
		return why_fail(why, ENOMEM, "out of memory");
	p->limits = *limits;
	p->sink = sink;
	p->next_order = 1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	err = init_queues(p, tables, n_tables, why);
	if (!err && limits->spool.directory && sink->statement)
		err = recover_spool(p, why);
	if (!err)
		err = deliver_start(p, why);
	if (err) {
		p->sink = NULL; /* still owned by the caller */
		pipeline_free(p);
		return err;
	}
	*ret_pipeline = p;
	return 0;
}

int pipeline_finish(struct pipeline *p, uint64_t deadline_ns, struct why *why)
{
	uint64_t left = 0, dropped = 0, kept = 0;
	char where[600];

	for (size_t i = 0; i < p->n_tables; i++)
		close_batch(p, &p->queues[i]);
	p->left_behind = !deliver_stop(p, deadline_ns);
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n_queues; i++) {
		const struct pipeline_counts *c = &p->queues[i].counts;

		kept += c->spooled;
		left += c->queued - c->spooled;
		dropped += c->dropped_memory + c->dropped_spool + c->dropped_corrupt +
			   c->dropped_refused;
	}
	pthread_mutex_unlock(&p->lock);
	if (kept) {
		spool_where(p->spool, where, sizeof(where));
		log_info("%llu row%s in %s for the next start", (unsigned long long)kept,
			 counted(kept, " waits", "s wait"), where);
	}
	if (!left && !dropped)
		return 0;
	return why_fail(why, EIO, "%llu row%s could not be delivered: %.400s",
			(unsigned long long)(left + dropped), plural(left + dropped),
			p->failure.text[0] ? p->failure.text
			: left		   ? "out of time"
					   : "dropped, the table ebpf_agent says when and why");
}

bool pipeline_free(struct pipeline *p)
{
	if (!p || p->left_behind)
		return !p;
	for (size_t i = 0; i < p->n_queues; i++) {
		struct table_queue *q = &p->queues[i];
		struct batch *next;

		batch_free(q->open);
		for (struct batch *b = q->first; b; b = next) {
			next = b->next;
			batch_free(b);
		}
		free(q->insert);
		if (!q->table)
			free((char *)q->name);
	}
	if (p->sink)
		p->sink->free(p->sink);
	ledger_close(p->ledger);
	spool_close(p->spool);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->queues);
	free(p);
	return true;
}
