/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel stamps with CLOCK_MONOTONIC, spans with CLOCK_REALTIME. NTP slews both alike; what
 * moves them apart are steps (settimeofday(), a leap second, chronyd at its start) and suspending,
 * during which the first stands still. So the distance is constant piece by piece: each stamp is
 * converted with that of its own time, as the spans of that time were. Both threads may ask.
 */
#ifndef UNDERSPAN_CLOCK_H
#define UNDERSPAN_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Measures the distance anew. Called before any conversion and then every second. */
void clock_calibrate(void);

struct clock_step {
	int64_t ns;		      /* the wall clock went forward, or back, by this */
	int64_t slept_ns;	      /* of it the host was suspended */
	uint64_t after_ns, before_ns; /* CLOCK_MONOTONIC: it was between these two */
};

/* The last step that clock_calibrate() saw, once. */
bool clock_take_step(struct clock_step *ret);

/* A descriptor that becomes readable at the moment of a step; or -errno. */
int clock_watch(void);
void clock_watch_fired(int fd); /* calibrates */

/* CLOCK_MONOTONIC ns -> microseconds since the epoch, the row's DateTime64(6). */
uint64_t clock_wall_us(uint64_t monotonic_ns);

uint64_t clock_monotonic_ns(void);

/* CPU time of this thread, and of all of this process. */
uint64_t clock_thread_cpu_ns(void);
uint64_t clock_process_cpu_ns(void);

#endif
