/* SPDX-License-Identifier: Apache-2.0 */
/* The table of process.h, for its writers. */
#ifndef UNDERSPAN_PROCESS_PROCESS_TABLE_H
#define UNDERSPAN_PROCESS_PROCESS_TABLE_H

#include "process/process.h"

/* NULL: not found. */
struct process *process_find(uint32_t host_pid);

/* Replaces the entry of this pid. `why`: as in `refused`, or NULL. */
struct process *process_add(uint32_t host_pid, const struct binary_file *file,
			    const struct why *why);

/* Removes and frees the process. */
void process_forget(struct process *p);

/* Keeps the process without its binary. */
void process_drop_binary(struct process *p);

/* Head of the table, for HASH_ITER. */
struct process *process_table(void);

/* Number of processes without binary for lack of room. */
size_t processes_without_room(void);

#endif
