/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery: batches left in the spool by earlier runs are queued for delivery. */
#ifndef UNDERSPAN_PIPELINE_RECOVER_H
#define UNDERSPAN_PIPELINE_RECOVER_H

#include "base/util.h"

enum { RECOVER_TABLES_MAX = 64 }; /* tables unknown to this run */

struct pipeline;

/* Opens the spool, queues the batches, counts the rows that a killed run had in memory only. */
int recover_spool(struct pipeline *pipeline, struct why *why);

/* Writes the ledger to the disk again if the file was lost. Collector thread, lock held. */
void recover_ledger(struct pipeline *pipeline);

#endif
