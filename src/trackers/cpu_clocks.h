/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock of each online CPU that runs a BPF program. Thread: the collector.
 */
#ifndef UNDERSPAN_TRACKERS_CPU_CLOCKS_H
#define UNDERSPAN_TRACKERS_CPU_CLOCKS_H

#include "trackers/tracker.h"

/*
 * Opens the clocks of all online CPUs, with a period in ns; again after CPUs came online or went
 * offline. To be called every second. A failure is logged and reported as the tracker's health.
 */
void cpu_clocks_tick(const struct tracker_output *output, struct bpf_program *program,
		     uint64_t period_ns);

/* Moves all clocks into the list, or closes them. A later tick opens them again. */
void cpu_clocks_give(struct link_list *links);
void cpu_clocks_close(void);

#endif
