/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishes the GIL addresses of each process to bpf/sched.bpf.c. Jobs of the readers search until
 * a GIL is found, and repeatedly where subinterpreters may have GILs.
 */
#ifndef UNDERSPAN_TRACKERS_GIL_ADDRESSES_H
#define UNDERSPAN_TRACKERS_GIL_ADDRESSES_H

#include "process/process.h"
#include "sched.skel.h"

/* The process has a binary. */
void gil_addresses_appeared(const struct sched_bpf *skeleton, const struct process *process,
			    bool by_callsite);
void gil_addresses_gone(uint32_t host_pid);
void gil_addresses_tick(void);
/* Is the address within a GIL of the process that was found? */
bool gil_addresses_has(uint32_t host_pid, uint64_t address);
void gil_addresses_done(void);

#endif
