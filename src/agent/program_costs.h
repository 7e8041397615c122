/* SPDX-License-Identifier: Apache-2.0 */
/* Run time and runs of BPF programs by tracker, of the kernel's statistics; the traps of uprobes
 * are added. */
#ifndef UNDERSPAN_AGENT_PROGRAM_COSTS_H
#define UNDERSPAN_AGENT_PROGRAM_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "trackers/trackers.h"

/* By index in the set; discovery's programs after the trackers. */
void program_costs_read(const struct tracker_set *set, uint64_t ns[MAX_TRACKERS + 1],
			uint64_t hits[MAX_TRACKERS + 1]);

/* Does the host keep the statistics without being asked? */
bool program_costs_kept(void);

#endif
