/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory in which batches wait for their acknowledgement: a file each, written before it
 * is sent and removed when ClickHouse has said yes. It outlives the agent. What is torn or corrupt
 * is moved to corrupt/, rows that ClickHouse will never take go to refused.ndjson.
 *
 * A file is given to the page cache, which outlives the agent, before it is sent; one that waits
 * longer than sync_after_ns is fsync'ed, so that it outlives the machine, too. While the database
 * answers, which is nearly always, no disk has to turn for it.
 */
#ifndef UNDERSPAN_SPOOL_H
#define UNDERSPAN_SPOOL_H

#include "pipeline/spool_file.h"

struct spool_options {
	char *directory; /* NULL: no spool */
	uint64_t max_bytes;
	uint64_t max_age_ns;
	uint64_t min_free_bytes; /* of the file system: the host needs it more than we do */
	uint64_t sync_after_ns;	 /* 0: before it is sent */
};

struct spool;

/*
 * Makes the directory if it is not there, and takes its lock. -EBUSY: another agent has it. Where
 * the disk cannot take a directory now, spool_put() tries again; likewise when it is removed.
 */
int spool_open(const struct spool_options *options, struct spool **ret_spool, struct why *why);
void spool_close(struct spool *spool);
int spool_directory(const struct spool *spool); /* fd, borrowed; < 0: it could not be made yet */

/* Each batch that is there, oldest first, whole or not. Removes the halves of one still whole. */
typedef int (*spool_on_file)(const struct spool_name *name, uint64_t disk_bytes, uint64_t age_ns,
			     void *context);
int spool_scan(struct spool *spool, spool_on_file on_file, void *context, struct why *why);

/*
 * Writes a sealed batch; it is there whole or not at all when this returns. `sync`: whatever
 * sync_after_ns says. Fills batch->disk_bytes.
 */
int spool_put(struct spool *spool, struct batch *batch, const char *table, bool sync,
	      struct why *why);

/* What a file for it would take. */
uint64_t spool_size_of(const struct batch *batch);

/* Reads a batch back. -EBADMSG: torn or corrupt, or gone; else the disk could not be read. */
int spool_load(struct spool *spool, struct batch *batch, const char *table, struct why *why);

void spool_remove(struct spool *spool, const struct batch *batch, const char *table);
/* Removes a batch whose halves are there: it is gone for good when this returns 0. */
int spool_replace(struct spool *spool, const struct batch *whole, const char *table,
		  struct why *why);
void spool_set_aside(struct spool *spool, const struct batch *batch, const char *table);

/* Appends refused rows (text: JSON lines) with the reason; what does not fit is not kept. */
void spool_park(struct spool *spool, const char *table, const char *reason,
		const struct buffer *rows);

/* fsyncs what has waited for sync_after_ns, or `all`. One thread at a time. */
void spool_sync(struct spool *spool, bool all);

#endif
