/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the pipeline: each table's closed batches in their order, and what they take of memory
 * and spool. The pipeline's lock is held for every function here.
 */
#ifndef UNDERSPAN_QUEUE_H
#define UNDERSPAN_QUEUE_H

#include <pthread.h>

#include "log.h"
#include "pipeline/ledger.h"
#include "pipeline/pipeline.h"

/* A batch in the spool costs some 200 bytes of memory, and a file. */
enum { SPOOL_FILES_MAX = 32768 };

struct table_queue {
	const char *name;
	const struct table *table; /* NULL: an earlier run's, which this one has not */
	char *insert;		   /* the statement; NULL when batches are not sealed */
	struct batch *open;	   /* collector's */
	uint64_t open_memory;	   /* collector's: what of it is in pipeline.open_bytes */
	struct batch *first, **last;
	struct batch *fresh;	       /* the first BATCH_FRESH one; behind it all are */
	uint64_t n_closed;	       /* in the list; read without the lock, too */
	uint64_t retry_at_ns;	       /* after a failure */
	uint64_t retry_wait_ns;	       /* 0: the last attempt did not fail */
	unsigned int shed_rank;	       /* higher ones go first */
	unsigned int refused;	       /* rows or batches in a row */
	struct pipeline_counts counts; /* rows: collector's */
};

struct pipeline {
	struct pipeline_limits limits; /* the collector changes them, under the lock */
	struct sink *sink;
	struct table_queue *queues;
	size_t n_tables, n_queues; /* behind the tables': those of tables found in the spool */
	struct spool *spool;	   /* NULL: none */
	struct ledger *ledger;
	char origin[160]; /* begins every token */

	uint64_t open_bytes;	  /* collector's */
	uint64_t ledger_check_ns; /* collector's: when to see that it is still on the disk */

	pthread_t writer, sender;
	bool writer_started, writer_runs, sender_runs;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC */
	uint64_t memory_bytes;	/* of closed batches; read without the lock, too */
	uint64_t spool_bytes, spool_files, corrupt_files;
	uint64_t next_order;
	bool spool_failing, delivery_failing;
	bool stopping, failed_since_stop, given_up;
	struct why broken;		 /* the sink is, for good; empty: it is not */
	struct why failure;		 /* the last; sender's until it has ended */
	struct complaint send_complaint; /* sender's */
	struct complaint spool_complaint, overflow_complaint, age_complaint; /* writer's */
	struct complaint shed_complaint;				     /* collector's */
};

struct table_queue *queue_find(struct pipeline *p, const char *table);

/* At the end of the table's list. */
void queue_append(struct pipeline *p, struct table_queue *q, struct batch *batch);

/* What it takes in memory or in the spool has changed. */
void queue_update_memory(struct pipeline *p, struct batch *batch);
void queue_spooled(struct pipeline *p, struct table_queue *q, struct batch *batch);

/* Takes the batch out, its rows become `*counter`'s. It is the caller's to free. */
void queue_settle(struct pipeline *p, struct table_queue *q, struct batch *batch,
		  uint64_t *counter);

/* The halves of `whole` take its place; it is the caller's to free. */
void queue_replace(struct pipeline *p, struct table_queue *q, struct batch *whole,
		   struct batch *halves[2]);

/* The table whose fresh batch is the oldest of all; NULL: there is none. */
struct table_queue *queue_fresh(struct pipeline *p);

/* The table whose first batch is the oldest of all that may be sent now, else when to look. */
struct table_queue *queue_ready(struct pipeline *p, uint64_t now, uint64_t *ret_wake_ns);

/* Drops the batch that goes first, of those in memory only. False: there is none. */
bool queue_shed(struct pipeline *p);

/* The oldest one in the spool; NULL: there is none that nobody works on. */
struct batch *queue_oldest_spooled(struct pipeline *p, struct table_queue **ret_queue);

/* One that should be in the spool and is not; NULL: there is none. */
struct batch *queue_unspooled(struct pipeline *p, struct table_queue **ret_queue);

#endif
