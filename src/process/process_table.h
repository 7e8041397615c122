/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of processes, running and ended, for their writers. */
#ifndef UNDERSPAN_PROCESS_PROCESS_TABLE_H
#define UNDERSPAN_PROCESS_PROCESS_TABLE_H

#include "process/process.h"

/* NULL: not found. */
struct process *process_find(uint32_t host_pid);

/* Ends a previous process of this pid. `why`: as in `refused`, or NULL. */
struct process *process_add(uint32_t host_pid, const struct binary_file *file,
			    const struct why *why);

/* Takes the process off the table. A readable process is kept for late events. */
void process_end(struct process *p);

/* Keeps the process as refused, without binary and cached data. */
void process_drop_binary(struct process *p);

/* Holds a reference during a job. */
void process_hold(struct process *p);
void process_release(struct process *p);

/* Head of the table of running processes, for HASH_ITER. */
struct process *process_table(void);

/* Number of processes without binary for lack of room. */
size_t processes_without_room(void);

/* Frees processes that ended a while ago. */
void process_table_tick(uint64_t now_ns);
/* Frees all ended processes. */
void process_table_done(void);

#endif
