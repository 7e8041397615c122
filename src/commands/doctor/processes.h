/* SPDX-License-Identifier: Apache-2.0 */
/* What can be watched of the processes that the user named, and of their descendants. */
#ifndef UNDERSPAN_COMMANDS_DOCTOR_PROCESSES_H
#define UNDERSPAN_COMMANDS_DOCTOR_PROCESSES_H

#include "commands/pids.h"
#include "trackers/trackers.h"

/* Time limit for a stalled process or file. */
#define DOCTOR_PATIENCE_NS (5 * NSEC_PER_SEC)

/* Stops the readers of processes, and closes the trackers if nothing uses them any more. */
void doctor_check_processes(struct tracker_set *set, const struct pid_list *pids);

#endif
