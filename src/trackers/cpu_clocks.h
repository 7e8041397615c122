/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock of each online CPU that runs a BPF program. Thread: the collector.
 */
#ifndef UNDERSPAN_TRACKERS_CPU_CLOCKS_H
#define UNDERSPAN_TRACKERS_CPU_CLOCKS_H

#include "trackers/tracker.h"

/*
 * Opens the clocks that are not open, with a period in ns: of all CPUs at first, then of those that
 * came online since. To be called every second. What cannot be opened is told once, as the health
 * of the tracker.
 */
void cpu_clocks_tick(const struct tracker_output *output, struct bpf_program *program,
		     uint64_t period_ns);

/* Closes all: the program runs no more when this returns. A later tick opens them again. */
void cpu_clocks_close(void);

#endif
