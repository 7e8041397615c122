/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier run left in the spool becomes this run's to deliver. */
#ifndef UNDERSPAN_RECOVER_H
#define UNDERSPAN_RECOVER_H

#include "util.h"

enum { RECOVER_TABLES_MAX = 64 }; /* that this run does not have itself */

struct pipeline;

/* Opens the spool, queues its batches, counts what a killed run had in memory only. */
int recover_spool(struct pipeline *pipeline, struct why *why);

/* The count of what only memory has is on the disk again, if it was not. Collector, lock held. */
void recover_ledger(struct pipeline *pipeline);

#endif
