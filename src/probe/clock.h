/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel stamps with CLOCK_MONOTONIC, spans with CLOCK_REALTIME. The offset between the two
 * changes (NTP slews, steps), so it is measured again and again; both threads may ask.
 */
#ifndef UNDERSPAN_CLOCK_H
#define UNDERSPAN_CLOCK_H

#include <stdint.h>

/* Measures the offset anew. Called before any conversion and then every second. */
void clock_calibrate(void);

/* CLOCK_MONOTONIC ns -> microseconds since the epoch, the row's DateTime64(6). */
uint64_t clock_wall_us(uint64_t monotonic_ns);

uint64_t clock_monotonic_ns(void);

/* CPU time of this thread, and of all of this process. */
uint64_t clock_thread_cpu_ns(void);
uint64_t clock_process_cpu_ns(void);

#endif
