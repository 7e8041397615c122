/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells bpf/sched.bpf.c where the interpreter of each process lies, so that it can walk the Python
 * stacks of its threads. Both trackers that share the object say when a process appears or goes.
 */
#ifndef UNDERSPAN_SCHED_PYTHON_H
#define UNDERSPAN_SCHED_PYTHON_H

#include "sched.skel.h"
#include "probe/processes.h"

/* `process` appeared, or became another program. Two trackers may say so: the last counts. */
void sched_python_appeared(const struct sched_bpf *skeleton, const struct process *process);
void sched_python_gone(uint32_t host_pid);

/* Looks again for the interpreters that were not up yet. */
void sched_python_tick(uint64_t now_ns);
void sched_python_done(void);

#endif
