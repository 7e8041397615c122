/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivery counters of a table since the start, and the state of the delivery. At any time
 *
 *	rows + recovered = inserted + dropped_* + queued
 */
#ifndef UNDERSPAN_PIPELINE_COUNTS_H
#define UNDERSPAN_PIPELINE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct pipeline_counts {
	uint64_t rows;		   /* added by this run */
	uint64_t recovered;	   /* rows of earlier runs, found in the spool at the start */
	uint64_t inserted;	   /* acknowledged by the sink */
	uint64_t dropped_memory;   /* shed at memory_bytes, or out of memory */
	uint64_t dropped_spool;	   /* oldest files, at spool.max_bytes or spool.max_age */
	uint64_t dropped_corrupt;  /* torn or corrupt spool files, quarantined */
	uint64_t dropped_refused;  /* permanently refused by ClickHouse */
	uint64_t queued;	   /* pending, in memory or in the spool */
	uint64_t spooled;	   /* part of `queued` in the spool: survives the agent */
	uint64_t lost_crash;	   /* in memory of the previous run when killed; not in `rows` */
	uint64_t retries;	   /* repeated sends of batches */
	uint64_t columns_left_out; /* columns of the last batch missing in the database's table */
	uint64_t bytes;		   /* acknowledged bodies, compressed */
};

struct pipeline_state {
	uint64_t memory_bytes; /* rows in memory, part of the budget memory_bytes */
	uint64_t spool_bytes, spool_files;
	uint64_t oldest_ns;	/* age of the oldest pending row; 0: none */
	bool spool_degraded;	/* the spool exists and is not writable */
	bool delivery_failing;	/* the last attempt failed */
	uint64_t corrupt_files; /* quarantined files */
};

#endif
