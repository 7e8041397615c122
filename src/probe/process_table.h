/* SPDX-License-Identifier: Apache-2.0 */
/* The table behind processes.h, for those who keep it. */
#ifndef UNDERSPAN_PROBE_PROCESS_TABLE_H
#define UNDERSPAN_PROBE_PROCESS_TABLE_H

#include "probe/processes.h"

/* NULL: it is not there. */
struct process *process_find(uint32_t host_pid);

/* Takes the place of what the table had by this pid. `why`: as in `refused`, or NULL. */
struct process *process_add(uint32_t host_pid, const struct binary_file *file,
			    const struct why *why);

/* Its pointer is no more. */
void process_forget(struct process *p);

/* It goes on without the binary. */
void process_drop_binary(struct process *p);

/* The first one, for HASH_ITER. */
struct process *process_table(void);

/* How many have no binary for lack of room. */
size_t processes_without_room(void);

#endif
