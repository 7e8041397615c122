/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of CLOCK_MONOTONIC (kernel events) to CLOCK_REALTIME (spans). NTP slews both clocks
 * alike. Their offset changes only by steps (settimeofday(), a leap second, chronyd at its start)
 * and by suspend, which stops CLOCK_MONOTONIC. The offset is therefore piecewise constant: each
 * timestamp is converted with the offset of its own time, like the spans of that time. Thread-safe.
 */
#ifndef UNDERSPAN_BASE_CLOCK_H
#define UNDERSPAN_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Measures the offset. To be called before any conversion, then every second. */
void clock_calibrate(void);

struct clock_step {
	int64_t ns;		      /* step of the wall clock, forward or (negative) back */
	int64_t slept_ns;	      /* part of the step spent suspended */
	uint64_t after_ns, before_ns; /* CLOCK_MONOTONIC bounds of the step */
};

/* Returns the last step seen by clock_calibrate(), once. */
bool clock_take_step(struct clock_step *ret);

/* A descriptor that becomes readable at a step, or -errno. */
int clock_watch(void);
void clock_watch_fired(int fd); /* calibrates */

/* CLOCK_MONOTONIC ns -> microseconds since the epoch, the row's DateTime64(6). */
uint64_t clock_wall_us(uint64_t monotonic_ns);

uint64_t clock_monotonic_ns(void);

/* CPU time of the calling thread; of the whole process. */
uint64_t clock_thread_cpu_ns(void);
uint64_t clock_process_cpu_ns(void);

#endif
