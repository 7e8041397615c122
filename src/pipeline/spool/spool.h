/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool: a directory with one file per batch, written before the send and removed after
 * ClickHouse's acknowledgement. The spool survives the agent. Torn or corrupt files are moved to
 * corrupt/; permanently refused rows go to refused.ndjson.
 *
 * Before the send a file is in the page cache, which survives the agent. A file older than
 * sync_after_ns is fsync'ed, to survive the machine, too. While the database answers, no disk I/O
 * is needed.
 */
#ifndef UNDERSPAN_PIPELINE_SPOOL_SPOOL_H
#define UNDERSPAN_PIPELINE_SPOOL_SPOOL_H

#include "pipeline/spool/spool_file.h"

struct spool_options {
	char *directory; /* NULL: no spool */
	uint64_t max_bytes;
	uint64_t max_age_ns;
	uint64_t min_free_bytes; /* free space of the file system reserved for the host */
	uint64_t sync_after_ns;	 /* 0: before the send */
};

struct spool;

/*
 * Creates and locks the directory. -EBUSY: locked by another agent. If the directory cannot be
 * created now, or is removed later, spool_put() tries again.
 */
int spool_open(const struct spool_options *options, struct spool **ret_spool, struct why *why);
void spool_close(struct spool *spool);
int spool_directory(const struct spool *spool); /* fd, borrowed; < 0: not created so far */

/* The directory's path now: another one than in the options if it was moved. */
void spool_where(const struct spool *spool, char *path, size_t size);

/* All batches, oldest first. Removes halves if the whole batch still exists. */
typedef int (*spool_on_file)(const struct spool_name *name, uint64_t disk_bytes, uint64_t age_ns,
			     void *context);
int spool_scan(struct spool *spool, spool_on_file on_file, void *context, struct why *why);

/*
 * Writes a sealed batch atomically. `sync`: fsync regardless of sync_after_ns. Sets
 * batch->disk_bytes.
 */
int spool_put(struct spool *spool, struct batch *batch, const char *table, bool sync,
	      struct why *why);

/* Disk use of a batch's file. */
uint64_t spool_size_of(const struct batch *batch);

/* Reads a batch. -EBADMSG: torn, corrupt or missing; other errors: the disk could not be read. */
int spool_load(struct spool *spool, struct batch *batch, const char *table, struct why *why);

void spool_remove(struct spool *spool, const struct batch *batch, const char *table);
/* Removes a batch after the halves were written; 0: durably removed. */
int spool_replace(struct spool *spool, const struct batch *whole, const char *table,
		  struct why *why);
void spool_quarantine(struct spool *spool, const struct batch *batch, const char *table);

/* Appends refused rows (JSON lines) with the reason to the dead-letter file; rows over the file's
 * limit are dropped. */
void spool_dead_letter(struct spool *spool, const char *table, const char *reason,
		       const struct buffer *rows);

/* fsyncs files older than sync_after_ns, or `all`. One thread at a time. */
void spool_sync(struct spool *spool, bool all);

#endif
