/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits the rows that a tracker makes of short events: a busy host has a row of each event only
 * for a burst of a minute, then a sample with weights (struct sampling). Long events stay rows. One
 * per tracker, for the governor.
 */
#ifndef UNDERSPAN_AGENT_ROW_LIMIT_H
#define UNDERSPAN_AGENT_ROW_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* The highest level: events of 32 ms and longer are never sampled, at least one in 32 of the others
 * is a row. */
enum { ROW_LIMIT_BURST_S = 60, ROW_LIMIT_LEVEL_MAX = 5 };

struct row_limit {
	uint64_t counted;   /* rows at the last interval */
	double used;	    /* rows beyond the limit, not yet made good */
	double rate;	    /* rows per second in the last interval */
	unsigned int level; /* of struct sampling */
	unsigned int quiet; /* consecutive intervals with room for a lower level */
};

/*
 * `rows`: made since the start; `seconds`: since the last call; `per_second`: the limit, 0: none.
 * Returns whether the level has changed.
 */
bool row_limit_adjust(struct row_limit *limit, uint64_t rows, double seconds, double per_second);

#endif
