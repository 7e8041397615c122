/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From off_cpu's rows to stacks and the time spent at each. Long waits are rows of their own and
 * have Python frames; all of them, also the short ones, are in the sums that the kernel keeps
 * (ebpf_off_cpu_profile), with native frames. What the sums have more than the rows is added to
 * them, so that the stacks' times are the sums' times.
 */
#ifndef UNDERSPAN_OFFCPU_STACKS_H
#define UNDERSPAN_OFFCPU_STACKS_H

#include "commands/folded.h"
#include "pipeline/column.h"

/* `wakers`: stacks go on with who ended the wait. Before the first row. */
void offcpu_stacks_init(bool wakers);

/* Takes rows of both tables, and leaves others alone. */
void offcpu_stacks_row(const struct table *table, const void *row);

/* The kernel's sums so far: of all, of one thread (very much, where it is not known any more). */
uint64_t offcpu_stacks_total_ns(void);
uint64_t offcpu_stacks_waited_ns(uint32_t host_tid);

/* Adds the stacks so far, in microseconds (`value`). -ENOMEM. */
int offcpu_stacks_fold(struct folded *ret);

/* Rows could not be kept for want of memory. */
bool offcpu_stacks_failed(void);

void offcpu_stacks_free(void);

#endif
