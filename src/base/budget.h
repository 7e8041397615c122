/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heap budget for reading untrusted files: per file, and for all reader processes together. Charged
 * before an allocation, released after. Without room, a reader waits briefly for a release, then is
 * refused. Files are mapped and use only page cache, which the kernel can reclaim.
 */
#ifndef UNDERSPAN_BASE_BUDGET_H
#define UNDERSPAN_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUDGET_SLOTS = 512 };

/* Creates the counters shared by all processes; to be called before the fork server is forked. 0 or
 * -errno. */
int budget_start(uint64_t memory_limit);

/* Called once in a reader process: selects the slot to charge. Other processes charge slot 0. */
void budget_use_slot(uint32_t slot);

/* Maximum bytes of a single file's tables. */
size_t budget_of_file(void);

bool budget_take(size_t bytes);
void budget_give(size_t bytes);

/* Releases the charges of a slot whose process has ended. */
void budget_slot_ended(uint32_t slot);

/* For messages; argument: budget_of_file() in MiB. */
#define BUDGET_SPENT "over the limit of %zu MiB of memory for one file"

/* Bytes charged now. */
uint64_t budget_used(void);

#endif
