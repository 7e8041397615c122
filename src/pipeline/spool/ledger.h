/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of rows added and rows safe, in a mapped file of the spool that survives the agent: after
 * a kill, the next run knows how many rows were lost in memory. An update is a store into memory.
 */
#ifndef UNDERSPAN_PIPELINE_SPOOL_LEDGER_H
#define UNDERSPAN_PIPELINE_SPOOL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct ledger;

/* State left by the previous run. `writing`: the batch being written at the kill; 0: none. */
struct ledger_lost {
	const char *table;
	uint64_t rows; /* added and not safe, rows of `writing` included */
	uint64_t writing;
	uint64_t unreported; /* lost by earlier runs and not reported before the kill */
};
typedef void (*ledger_on_lost)(const struct ledger_lost *lost, void *context);

/*
 * A ledger in memory until ledger_keep(). `report`: the table whose rows report losses; a loss
 * counts as reported once such rows are safe. NULL: out of memory.
 */
struct ledger *ledger_new(const char *const *tables, size_t n_tables, const char *report);

/*
 * Moves the ledger into the directory's file, if not there or removed. Calls `on_lost` with the
 * previous run's losses, unless the machine was rebooted since (the page would be stale). Negative:
 * the disk refuses now; may succeed later. Collector thread, pipeline's lock held.
 */
int ledger_keep(struct ledger *ledger, int spool_directory, ledger_on_lost on_lost, void *context);
void ledger_close(struct ledger *ledger);

/* `ledger` may be NULL in all functions. Rows were added: collector thread only. */
void ledger_add(struct ledger *ledger, size_t table, uint64_t rows);

/* The following require the pipeline's lock: */
void ledger_writing(struct ledger *ledger, size_t table, uint64_t order);
/* Losses of earlier runs, kept for the next run in case this run is killed before its report is
 * safe. */
void ledger_add_unreported(struct ledger *ledger, size_t table, uint64_t rows);
/* Rows are in the spool (as batch `order`), delivered, or counted as dropped (`order` 0). */
void ledger_add_durable(struct ledger *ledger, size_t table, uint64_t rows, uint64_t order);

#endif
