// SPDX-License-Identifier: Apache-2.0
/* Overlapping intervals. See overlap.h. */
#include "commands/overlap.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

size_t overlap_most(int64_t *begins, int64_t *ends, size_t n, int64_t *ret_at)
{
	size_t begun = 0, ended = 0, most = 0;

	*ret_at = 0;
	if (!n)
		return 0;
	qsort(begins, n, sizeof(*begins), by_time);
	qsort(ends, n, sizeof(*ends), by_time);
	while (begun < n) {
		/* an interval of a stepped clock may end before it begins */
		if (ended < n && ends[ended] <= begins[begun]) {
			ended++;
			continue;
		}
		begun++;
		if (begun > ended && begun - ended > most) {
			most = begun - ended;
			*ret_at = begins[begun - 1];
		}
	}
	return most;
}
