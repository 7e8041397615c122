/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows from BPF maps and iterators instead of ring buffers. Each function takes the data read and
 * adds rows.
 */
#ifndef UNDERSPAN_TRACKERS_OWN_ROWS_H
#define UNDERSPAN_TRACKERS_OWN_ROWS_H

#include "events/cpu_throttle.h"
#include "events/tcp_accept.h"
#include "trackers/sched.h"
#include "trackers/tracker.h"

/* An entry of a profile map, struct gil_profile or off_cpu_profile: sched_sums.each. */
void gil_wait_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		      const void *key, const void *value);
/* `key` NULL: overflow row. */
void off_cpu_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		     const void *key, const void *value);

/* An entry of a profile map, struct request_profile. */
void request_add_sum(const struct tracker_output *output, const struct sched_sums *of,
		     const void *key, const void *value);

/* Reports of all listeners in a tick. */
void tcp_accept_add_reports(const struct tracker_output *output,
			    const struct tcp_accept_event *reports, size_t n);

/* State of a process and a quota. `output` NULL: between ticks, to find new processes. */
void cpu_throttle_take(const struct tracker_output *output, const struct cpu_throttle_event *event);

#endif
