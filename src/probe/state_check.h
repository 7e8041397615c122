/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An interpreter that has started: is its state where its build should have it (python/live.h)?
 * Looked at some times, on readers' threads, until that is certain.
 */
#ifndef UNDERSPAN_PROBE_STATE_CHECK_H
#define UNDERSPAN_PROBE_STATE_CHECK_H

#include "probe/processes.h"

struct state_check_hooks {
	/* process->live or process->unread is set. */
	void (*checked)(const struct process *process);
	/* Nothing that was read of it can be right, as `unread` says: it is no such Python. */
	void (*unsound)(struct process *process);
};
void state_checks_init(const struct state_check_hooks *hooks);

/*
 * The process is in the table, with a binary; it has just appeared. `start_time`: as
 * proc_start_time() has it; 0: a forked child, which is whatever the table has by this pid.
 */
void state_check_soon(struct process *process, uint64_t start_time);

void state_checks_tick(uint64_t now_ns);

/* What is being read is thrown away when it comes. */
void state_checks_stop(void);

#endif
