/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time by stack from off_cpu's rows. Long waits have rows with Python frames; all waits are in the
 * sums kept in BPF (ebpf_off_cpu_profile), with native frames. The excess of the sums over the rows
 * is added, so that the stacks add up to the sums.
 */
#ifndef UNDERSPAN_COMMANDS_OFFCPU_STACKS_H
#define UNDERSPAN_COMMANDS_OFFCPU_STACKS_H

#include "commands/offcpu/folded.h"
#include "rows/column.h"

/* As in stack_text_options. To be called before the first row. */
void offcpu_stacks_init(bool wakers, bool native);

/*
 * Threads of processes other than `but_host_pid` are named with their pid if the process lives for
 * half a second; 0: all threads. To be called before the first row.
 */
void offcpu_stacks_name_processes(uint32_t but_host_pid);

/* Adds rows of both tables, and samples of ebpf_on_cpu; ignores other tables. */
void offcpu_stacks_row(const struct table *table, const void *row);

/* The time of a thread so far; a huge value if no longer known. */
uint64_t offcpu_stacks_waited_ns(uint32_t host_tid);

/* Adds the stacks so far, in microseconds (`value`). -ENOMEM. */
int offcpu_stacks_fold(struct folded *ret);

/* Whether rows were lost for lack of memory. */
bool offcpu_stacks_failed(void);

void offcpu_stacks_free(void);

#endif
