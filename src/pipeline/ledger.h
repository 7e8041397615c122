/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many rows there were, and how many of them are safe, in a page that outlives the agent: when
 * it is killed with rows in its memory, the next one knows how many those were. A file of the
 * spool, mapped; an update is a store into memory.
 */
#ifndef UNDERSPAN_LEDGER_H
#define UNDERSPAN_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

struct ledger;

/* What the run before left. `writing`: the batch it was about to write, 0 if none is in doubt. */
struct ledger_lost {
	const char *table;
	uint64_t rows; /* added and not safe; those of `writing` among them */
	uint64_t writing;
	uint64_t untold; /* lost by runs before that one, which was killed before it could tell */
};
typedef void (*ledger_on_lost)(const struct ledger_lost *lost, void *context);

/*
 * In memory, for the time being. `report`: the table whose rows tell what was lost; as soon as some
 * are safe, so is that. NULL: no memory.
 */
struct ledger *ledger_new(const char *const *tables, size_t n_tables, const char *report);

/*
 * From now on in the directory's file, if it is not already, or if somebody has removed it. Tells
 * what the run before lost, if the machine has not been restarted since (its page would be out of
 * date). Negative: the disk does not take it now; it may later. Collector only, the pipeline's
 * lock being held.
 */
int ledger_keep(struct ledger *ledger, int spool_directory, ledger_on_lost on_lost, void *context);
void ledger_close(struct ledger *ledger);

/* All may be called with NULL. A row is there: collector only. */
void ledger_add(struct ledger *ledger, size_t table, uint64_t rows);

/* The pipeline's lock is held for these: */
void ledger_writing(struct ledger *ledger, size_t table, uint64_t order);
/* Lost by runs before: for the next run, should this one be killed before its report is safe. */
void ledger_untold(struct ledger *ledger, size_t table, uint64_t rows);
/* Rows are in the spool (as batch `order`), delivered, or counted as dropped (`order` 0). */
void ledger_secure(struct ledger *ledger, size_t table, uint64_t rows, uint64_t order);

#endif
