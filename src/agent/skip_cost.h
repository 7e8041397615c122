/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far it is of use to skip events (sampling.skip_shift): an event that is skipped still costs
 * the start of the BPF program. Beyond that point, skipping takes rows away and saves nothing. One
 * per tracker, for the governor.
 */
#ifndef UNDERSPAN_AGENT_SKIP_COST_H
#define UNDERSPAN_AGENT_SKIP_COST_H

#include <stdint.h>

struct skip_cost {
	double whole_ns; /* mean run of the tracker's programs while no event was skipped; 0:
			    unknown */
	double run_ns;	 /* the same in the last interval */
};

/* `ns` in `runs` of the programs, in the last interval, with this shift. */
void skip_cost_measured(struct skip_cost *cost, uint64_t ns, uint64_t runs, unsigned int shift);

/* The highest shift that is of use, `most` at most. */
unsigned int skip_cost_useful_shift(const struct skip_cost *cost, unsigned int shift,
				    unsigned int most);

#endif
