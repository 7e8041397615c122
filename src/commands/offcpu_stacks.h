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

/* Of one thread (host tid; 0: those that found no room), what the kernel's sums say. */
struct offcpu_thread {
	uint32_t host_tid;
	uint64_t off_ns;
	UT_hash_handle hh;
};

/* `wakers`: stacks go on with who ended the wait. Before the first row. */
void offcpu_stacks_init(bool wakers);

/* Takes rows of both tables, and leaves others alone. */
void offcpu_stacks_row(const struct table *table, const void *row);

/* The sums so far: of times, of all rows of the profile; of threads. */
uint64_t offcpu_stacks_total_ns(void);
const struct offcpu_thread *offcpu_stacks_threads(void); /* a uthash table */

/* Adds the stacks so far, in microseconds (`value`). -ENOMEM. */
int offcpu_stacks_fold(struct folded *ret);

/* Rows could not be kept for want of memory. */
bool offcpu_stacks_failed(void);

void offcpu_stacks_free(void);

#endif
