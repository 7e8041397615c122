/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the kernel where the interpreter of each process lies, for the trackers that walk the
 * Python stacks of threads (bpf/lib/pythread.bpf.h).
 */
#ifndef UNDERSPAN_PYTHON_PLACES_H
#define UNDERSPAN_PYTHON_PLACES_H

#include "probe/processes.h"

/* The maps of bpf/lib/python_places.bpf.h. */
void python_places_start(int processes_fd, int binaries_fd);

/* Can its threads' states be found, by pthread_self() or by the thread's id? */
bool python_places_walkable(const struct python_binary *binary);

/* `process` appeared, or became another program. */
void python_places_appeared(const struct process *process);
void python_places_gone(uint32_t host_pid);

/* Looks again for the interpreters that were not up yet. */
void python_places_tick(uint64_t now_ns);
void python_places_done(void);

#endif
