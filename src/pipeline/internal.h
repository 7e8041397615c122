/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline as seen by its own files. The lock protects all members, unless a member
 * is said to be one thread's.
 */
#ifndef UNDERSPAN_PIPELINE_INTERNAL_H
#define UNDERSPAN_PIPELINE_INTERNAL_H

#include <pthread.h>

#include "base/log.h"
#include "pipeline/counts.h"
#include "pipeline/limits.h"
#include "pipeline/sink/sink.h"
#include "pipeline/spool/ledger.h"

/* A spooled batch costs about 200 bytes of memory and a file. */
enum { SPOOL_FILES_MAX = 32768 };

struct table_queue {
	const char *name;
	const struct table *table; /* NULL: table of an earlier run, unknown to this run */
	char *insert;		   /* the statement; NULL when batches are not sealed */
	struct batch *open;	   /* collector's */
	uint64_t open_memory;	   /* collector's: share of pipeline.open_bytes */
	struct batch *first, **last;
	struct batch *fresh;	/* first BATCH_FRESH batch; all later batches are fresh, too */
	uint64_t n_closed;	/* length of the list; also read without the lock */
	uint64_t retry_at_ns;	/* after a failure */
	uint64_t retry_wait_ns; /* 0: the last attempt did not fail */
	unsigned int shed_rank; /* higher ranks are shed first */
	uint64_t accepted;	/* accepted batches and halves */
	uint64_t accepted_at_refusal; /* `accepted` at the last quarantine */
	unsigned int n_quarantined;
	struct pipeline_counts counts; /* rows: collector's */
};

struct pipeline {
	struct pipeline_limits limits; /* changed by the collector under the lock */
	struct sink *sink;
	struct table_queue *queues;
	size_t n_tables, n_queues; /* queues after n_tables: tables found in the spool */
	struct spool *spool;	   /* NULL: no spool */
	struct ledger *ledger;
	char origin[160]; /* prefix of all tokens */

	uint64_t open_bytes;	  /* collector's */
	uint64_t ledger_check_ns; /* collector's: next check that the ledger's file exists */

	pthread_t writer, sender;
	bool writer_started, writer_runs, sender_runs;
	bool left_behind; /* a thread of the two does not end */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC */
	uint64_t memory_bytes;	/* closed batches; also read without the lock */
	uint64_t spool_bytes, spool_files, corrupt_files;
	uint64_t next_order;
	bool spool_failing, delivery_failing;
	bool stopping, failed_since_stop, given_up;
	struct why broken;		 /* reason of a permanently broken sink; empty: none */
	struct why failure;		 /* last failure; sender's while the thread runs */
	struct log_limit send_log_limit; /* sender's */
	struct log_limit spool_log_limit, overflow_log_limit, age_log_limit; /* writer's */
	struct log_limit shed_log_limit;				     /* collector's */
};

#endif
