// SPDX-License-Identifier: Apache-2.0
/* Limits the rows of short events. See row_limit.h. */
#include "agent/row_limit.h"

enum { INTERVALS_QUIET = 3 };

/* A level at most halves the rows. */
static unsigned int levels_for(double ratio)
{
	unsigned int levels = 1;

	for (; ratio > 2; ratio /= 2)
		levels++;
	return levels;
}

/* The lowest level with room for its rows: a level less at most doubles them. */
static unsigned int level_with_room(const struct row_limit *l, double per_second)
{
	unsigned int level = l->level;

	for (double rate = l->rate * 2; level && rate < per_second * 0.9; rate *= 2)
		level--;
	return level;
}

bool row_limit_adjust(struct row_limit *l, uint64_t rows, double seconds, double per_second)
{
	unsigned int before = l->level;
	double burst = per_second * ROW_LIMIT_BURST_S, made = (double)(rows - l->counted);

	if (seconds <= 0)
		return false;
	l->counted = rows;
	l->rate = made / seconds;
	if (per_second <= 0) {
		l->used = 0;
		l->level = 0;
		return before != 0;
	}
	l->used += made - per_second * seconds;
	l->used = l->used < 0 ? 0 : l->used > burst ? burst : l->used;
	l->quiet = level_with_room(l, per_second) < l->level ? l->quiet + 1 : 0;
	if (l->used >= burst && l->rate > per_second) {
		l->level += levels_for(l->rate / per_second);
		if (l->level > ROW_LIMIT_LEVEL_MAX)
			l->level = ROW_LIMIT_LEVEL_MAX;
	} else if (l->quiet >= INTERVALS_QUIET) {
		l->level = level_with_room(l, per_second);
		l->quiet = 0;
	}
	return l->level != before;
}
