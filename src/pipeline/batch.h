/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: rows of one table, sent together. The collector fills and closes the batch; the writer
 * seals it. The bytes of a sealed batch never change, and the deduplication token names exactly
 * these bytes: repeated INSERTs are counted once by ClickHouse.
 */
#ifndef UNDERSPAN_PIPELINE_BATCH_H
#define UNDERSPAN_PIPELINE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/util.h"
#include "pipeline/dedup_token.h"

enum {
	BATCH_PART_MAX = 48,  /* depth of splits: a batch has fewer than 2^48 rows */
	BATCH_TABLE_MAX = 64, /* of a table's name, with its NUL */
};

enum batch_state {
	BATCH_FRESH, /* closed; to be sealed and written to the spool */
	BATCH_BUSY,  /* owned by a thread that works without the lock */
	BATCH_READY, /* ready to send */
};

struct batch {
	struct batch *next;
	uint64_t order;		       /* sequence number over all tables and runs of the agent */
	char part[BATCH_PART_MAX + 1]; /* "01": second half of the first half; "": not split */
	enum batch_state state;
	uint64_t rows;
	/*
	 * CLOCK_MONOTONIC of the first row, or of the file of a recovered batch. Times before the
	 * boot wrap modulo 2^64: only differences are valid.
	 */
	uint64_t opened_ns;
	uint64_t from_us, to_us; /* wall clock: first row, closing */
	uint32_t attempts;
	/*
	 * A refused row is dropped only if the table accepted other rows since accepted_before;
	 * until then the row is quarantined and later batches continue.
	 */
	bool refused, quarantined;
	uint64_t accepted_before; /* table_queue.accepted at the refusal of this batch or of its
				     origin */
	uint64_t retry_at_ns, retry_wait_ns; /* while quarantined */
	/*
	 * Server of an attempt with unknown outcome: the rows may have been inserted. Such a batch
	 * is split only after that server, or all servers repeatedly, refused the whole. 0: none.
	 * Unknown for recovered batches.
	 */
	bool recovered;
	uint64_t doubt_server;
	uint32_t doubt_refusals, doubt_refusals_there;
	uint64_t disk_bytes;   /* bytes in the spool; 0: in memory only */
	size_t counted_memory; /* queue.c: share of batch_memory() charged to the budget */
	bool durable;	       /* recorded as safe in the ledger */
	/* open: the last rows' text, after the rows compressed so far; sealed: gzip, all rows */
	struct buffer packed, body;
	size_t text_bytes;    /* of all rows */
	uint32_t crc, length; /* of the text compressed so far, for gzip's trailer */
	char *token;	      /* sealed batches in memory: deduplication token, ... */
	char *insert;	      /* ... "INSERT INTO t (a, b) FORMAT JSONEachRow" */
};

struct batch *batch_new(void);
void batch_free(struct batch *batch);

/* Bytes in memory. */
size_t batch_memory(const struct batch *batch);

/* Frees the parts that can be read back from the spool. */
void batch_unload(struct batch *batch);

static inline bool batch_is_loaded(const struct batch *batch)
{
	return batch->token != NULL;
}

/*
 * Compresses the text so far, as further blocks of the gzip file: while it is in the processor's
 * cache, and so that a large batch takes little memory. One member: older agents read no second
 * one. 0, or -ENOMEM with the batch unchanged.
 */
int batch_pack(struct batch *batch);

/*
 * Compresses the rows (gzip) and makes the token from `origin` (this run of this agent), table,
 * order and checksum of the bytes. 0, or -ENOMEM with the batch unchanged.
 */
int batch_seal(struct batch *batch, const char *origin, const char *table, const char *insert);

/* The rows of a sealed batch, decompressed. -EBADMSG: not gzip; -EFBIG: more than `max` bytes. */
int batch_rows_text(const struct batch *batch, size_t max, struct buffer *ret_text);

/*
 * Splits a sealed batch into two sealed batches: at the middle row, or by days (earlier, later).
 * Deterministic: the same batch always gives the same bytes and tokens. -ENODATA: a single row
 * cannot be split.
 */
int batch_split(const struct batch *batch, const char *table, bool by_days,
		struct batch *ret_halves[2]);

#endif
