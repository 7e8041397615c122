// SPDX-License-Identifier: Apache-2.0
/* Monotonic to wall time. See clock.h. */
#include "probe/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "util.h"

static _Atomic int64_t wall_minus_monotonic_ns;

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * (int64_t)NSEC_PER_SEC + ts.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_thread_cpu_ns(void)
{
	return (uint64_t)read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_process_cpu_ns(void)
{
	return (uint64_t)read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_calibrate(void)
{
	int64_t best_gap = INT64_MAX, offset = 0;

	/* the reading with the least time between its two monotonic neighbours was disturbed least
	 */
	for (int i = 0; i < 8; i++) {
		int64_t before = read_clock(CLOCK_MONOTONIC);
		int64_t wall = read_clock(CLOCK_REALTIME);
		int64_t after = read_clock(CLOCK_MONOTONIC);

		if (after - before < best_gap) {
			best_gap = after - before;
			offset = wall - (before + (after - before) / 2);
		}
	}
	atomic_store(&wall_minus_monotonic_ns, offset);
}

uint64_t clock_wall_us(uint64_t monotonic_ns)
{
	int64_t ns = (int64_t)monotonic_ns + atomic_load(&wall_minus_monotonic_ns);

	return ns > 0 ? (uint64_t)ns / NSEC_PER_USEC : 0;
}
