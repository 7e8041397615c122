/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the pipeline: closed batches of each table in order, with their use of memory and
 * spool. All functions require the pipeline's lock unless stated.
 */
#ifndef UNDERSPAN_PIPELINE_QUEUE_H
#define UNDERSPAN_PIPELINE_QUEUE_H

#include "pipeline/internal.h"

struct table_queue *queue_find(struct pipeline *p, const char *table);

/* Appends to the table's list. */
void queue_append(struct pipeline *p, struct table_queue *q, struct batch *batch);

/* To be called after a batch's memory or spool use has changed. */
void queue_update_memory(struct pipeline *p, struct batch *batch);
void queue_spooled(struct pipeline *p, struct table_queue *q, struct batch *batch);

/* Removes the batch and adds the number of rows to `*counter`. The caller frees the batch. */
void queue_remove(struct pipeline *p, struct table_queue *q, struct batch *batch,
		  uint64_t *counter);

/* Replaces `whole` by its halves. The caller frees `whole`. */
void queue_replace(struct pipeline *p, struct table_queue *q, struct batch *whole,
		   struct batch *halves[2]);

/* The table with the oldest fresh batch; NULL: none. */
struct table_queue *queue_fresh(struct pipeline *p);

/*
 * The batch to send now: the oldest of the tables' first batches; otherwise the time of the next
 * check. A table that refuses all batches is tested with its newest batch.
 */
struct batch *queue_ready(struct pipeline *p, uint64_t now, struct table_queue **ret_queue,
			  uint64_t *ret_wake_ns);

/* Quarantines the batch until `retry_at_ns`, or until the table accepts a batch. */
void queue_quarantine(struct table_queue *q, struct batch *batch, uint64_t retry_at_ns);

/* The table accepted a batch: quarantined batches may be retried. */
void queue_accepted(struct table_queue *q);

/* Many batches are quarantined and none was accepted since: the table is wrong, not the rows. */
bool queue_refuses_all(const struct table_queue *q);

/* Drops the batch to shed first among those in memory only. False: none. */
bool queue_shed(struct pipeline *p);

/* The oldest spooled batch without work in progress; NULL: none. */
struct batch *queue_oldest_spooled(struct pipeline *p, struct table_queue **ret_queue);

/* Whether an empty spool could hold a file of `size` bytes. Lock not required. */
bool queue_fits_spool(const struct pipeline *p, uint64_t size);

/* A batch in memory only that fits the spool; NULL: none. */
struct batch *queue_unspooled(struct pipeline *p, struct table_queue **ret_queue);

#endif
