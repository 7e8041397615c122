// SPDX-License-Identifier: Apache-2.0
/* How far it is of use to skip events. See skip_cost.h. */
#include "agent/skip_cost.h"

/* Events that are examined need not cost less than this part of the programs' starts. */
static const double SMALL_PART = 1.0 / 16;

void skip_cost_measured(struct skip_cost *cost, uint64_t ns, uint64_t runs, unsigned int shift)
{
	if (!runs)
		return;
	cost->run_ns = (double)ns / (double)runs;
	if (!shift)
		cost->whole_ns = cost->run_ns;
}

/*
 * The mean run is start + examined / (1 << shift): two shifts give both. Without a measurement of
 * two shifts, each further shift may be of use.
 */
unsigned int skip_cost_useful_shift(const struct skip_cost *cost, unsigned int shift,
				    unsigned int most)
{
	double examined, start;
	unsigned int useful = 0;

	if (!shift || cost->whole_ns <= 0)
		return most;
	examined = (cost->whole_ns - cost->run_ns) / (1 - 1 / (double)(1U << shift));
	start = cost->whole_ns - examined;
	if (start <= 0)
		return most;
	for (; useful < most && examined > start * SMALL_PART; examined /= 2)
		useful++;
	return useful;
}
