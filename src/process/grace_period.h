/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes live long enough to be reported. A server that starts subprocesses forks copies
 * of the server that call exec() at once: not reported. Trackers watch every process from the start
 * anyway.
 */
#ifndef UNDERSPAN_PROCESS_GRACE_PERIOD_H
#define UNDERSPAN_PROCESS_GRACE_PERIOD_H

#include "process/process.h"

/* A process that exits or calls exec() within this time is not reported. */
enum { GRACE_PERIOD_MS = 500 };

struct grace_period_hooks {
	void (*reportable)(const struct process *process); /* lived longer than the grace period */
	void (*checked)(const struct process *process);	   /* never before reportable() */
};
void grace_period_init(const struct grace_period_hooks *hooks);

/*
 * The process is in the table. `start_time`: see proc_start_time(); 0: just forked. To be called
 * again after changes of its data.
 */
void grace_period_begin(struct process *process, uint64_t start_time);

/* The state was checked: reported now, or at the end of the grace period. */
void grace_period_checked(struct process *process);

void grace_period_tick(uint64_t now_ns);

/* Calls both hooks again for each reportable process, since health rows expire. */
void grace_period_repeat(void);

/* The agent stops: running processes become reportable. */
void grace_period_end_all(void);

/* Frees waiting entries. */
void grace_period_stop(void);

#endif
