/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells bpf/sched.bpf.c where the GILs of each process are. Jobs of the readers look for them,
 * until one is found, and again and again where there may be several: subinterpreters come and go.
 */
#ifndef UNDERSPAN_GIL_PLACES_H
#define UNDERSPAN_GIL_PLACES_H

#include "probe/processes.h"
#include "sched.skel.h"

/* `base_va`: where the file is mapped from. `process->binary` is there. */
void gil_places_appeared(const struct sched_bpf *skeleton, const struct process *process,
			 uint64_t base_va, bool by_callsite);
void gil_places_gone(uint32_t host_pid);
void gil_places_tick(void);
void gil_places_done(void);

#endif
