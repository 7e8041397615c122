/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: rows of one table that are sent together. It is filled by the collector, closed, and
 * sealed: from then on its bytes never change, and its token names exactly these bytes, so that
 * they can be sent as often as it takes and ClickHouse counts them once.
 */
#ifndef UNDERSPAN_BATCH_H
#define UNDERSPAN_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/buffer.h"
#include "util.h"

enum {
	BATCH_PART_MAX = 48,   /* cuts in two, each of a half: more than any batch has rows for */
	BATCH_TABLE_MAX = 64,  /* of a table's name, with its NUL */
	BATCH_TOKEN_MAX = 512, /* with its NUL */
};

enum batch_state {
	BATCH_FRESH, /* closed, to be sealed and written to the spool */
	BATCH_BUSY,  /* a thread works on it, unlocked: nobody else may touch it */
	BATCH_READY, /* to be sent */
};

struct batch {
	struct batch *next;
	uint64_t order;		       /* rises with time, over all tables and runs of the agent */
	char part[BATCH_PART_MAX + 1]; /* "01": the second half of the first half; "": whole */
	enum batch_state state;
	uint64_t rows;
	/*
	 * CLOCK_MONOTONIC of the first row; of a recovered one: of its file. Before the machine's
	 * start it is "negative", modulo 2^64: only its distance from now means something.
	 */
	uint64_t opened_ns;
	uint64_t from_us, to_us; /* wall clock of the first row and of the closing */
	uint32_t attempts;
	uint64_t disk_bytes;   /* in the spool: what it takes there; 0: it is in memory only */
	size_t counted_memory; /* queue.c: of batch_memory() in the budget */
	bool secured;	       /* in the ledger */
	char *token;	       /* sealed ones in memory: deduplication token, ... */
	char *insert;	       /* ... "INSERT INTO t (a, b) FORMAT JSONEachRow", */
	struct buffer body;    /* ... gzip */
};

struct batch *batch_new(void);
void batch_free(struct batch *batch);

/* What it holds in memory. */
size_t batch_memory(const struct batch *batch);

/* Frees what can be read from the spool again. */
void batch_unload(struct batch *batch);

/*
 * Replaces the rows by their gzip form and makes the token: `origin` (this run of this agent),
 * table, order, and the checksum of the bytes. Returns 0 or -ENOMEM, nothing being changed.
 */
int batch_seal(struct batch *batch, const char *origin, const char *table, const char *insert);

/* The body of a sealed batch as it was before; -EBADMSG if it is no gzip, -EFBIG over `max`. */
int batch_rows_text(const struct batch *batch, size_t max, struct buffer *ret_text);

/*
 * Cuts a sealed batch into two sealed ones: at the middle row, or by days, the earlier ones and
 * the later ones. The same batch is always cut into the same bytes and tokens. -ENODATA when it
 * cannot be cut: one row.
 */
int batch_split(const struct batch *batch, const char *table, bool by_days,
		struct batch *ret_halves[2]);

#endif
