/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State check of a started interpreter (cpython/live.h), repeated on reader threads until the
 * result is certain.
 */
#ifndef UNDERSPAN_PROCESS_STATE_CHECK_H
#define UNDERSPAN_PROCESS_STATE_CHECK_H

#include "process/process.h"

struct state_check_hooks {
	/* Called with process->live or process->unread set. */
	void (*checked)(struct process *process);
	/* The state is invalid (`unread` has the reason): not this Python. */
	void (*state_invalid)(struct process *process);
};
void state_checks_init(const struct state_check_hooks *hooks);

/*
 * Schedules checks for a new process in the table with a binary. `start_time`: see
 * proc_start_time(); 0: a forked child, identified by its table entry.
 */
void state_check_soon(struct process *process, uint64_t start_time);

void state_checks_tick(uint64_t now_ns);

/* Results of running checks are dropped. */
void state_checks_stop(void);

#endif
