/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of the rows: counts since the start, of one table, and the state of the delivery as
 * a whole. At any time
 *
 *	rows + recovered = inserted + dropped_* + queued
 */
#ifndef UNDERSPAN_COUNTS_H
#define UNDERSPAN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct pipeline_counts {
	uint64_t rows;		  /* added in this run */
	uint64_t recovered;	  /* found in the spool at the start: earlier runs' rows */
	uint64_t inserted;	  /* acknowledged by the sink */
	uint64_t dropped_memory;  /* shed at memory_bytes, or no memory */
	uint64_t dropped_spool;	  /* the oldest, at spool.max_bytes or spool.max_age */
	uint64_t dropped_corrupt; /* torn or corrupt spool files, set aside */
	uint64_t dropped_refused; /* ClickHouse will never take them */
	uint64_t queued;	  /* not decided about yet, in memory or in the spool */
	uint64_t spooled;	  /* of `queued`: in the spool, safe from the agent's end */
	uint64_t lost_crash; /* the run before was killed with these in its memory; not in `rows` */
	uint64_t retries;    /* batches sent once more */
	uint64_t bytes;	     /* of acknowledged bodies, as sent */
};

struct pipeline_state {
	uint64_t memory_bytes; /* of rows in memory, out of the budget memory_bytes */
	uint64_t spool_bytes, spool_files;
	uint64_t oldest_ns;	/* age of the oldest row that is not delivered; 0: none waits */
	bool spool_degraded;	/* there is a spool, and it cannot be written to */
	bool delivery_failing;	/* the last attempt failed */
	uint64_t corrupt_files; /* set aside */
};

#endif
