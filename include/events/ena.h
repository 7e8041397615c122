/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Counters that a network driver reported to somebody: bpf/ena.bpf.c -> src/trackers/ena.c. */
#ifndef UNDERSPAN_EVENTS_ENA_H
#define UNDERSPAN_EVENTS_ENA_H

#include "events/event.h"

/* The allowances of an EC2 instance, as the ENA driver names them; append only. */
#define ENA_COUNTERS(X)                                                                            \
	X(bw_in_allowance_exceeded)                                                                \
	X(bw_out_allowance_exceeded)                                                               \
	X(pps_allowance_exceeded)                                                                  \
	X(conntrack_allowance_exceeded)                                                            \
	X(linklocal_allowance_exceeded)                                                            \
	X(conntrack_allowance_available)

enum ena_counter {
#define X(name) ENA_##name,
	ENA_COUNTERS(X)
#undef X
		ENA_N_COUNTERS,
};

/* Where an interface's counters lie in what its driver reports; user space finds them by name. */
enum { ENA_NO_PLACE = 0xffffffff };
struct ena_places {
	__u32 n_stats; /* how many the driver reported then: another number, other places */
	__u32 place[ENA_N_COUNTERS];
};

/* The header's thread asked; start = end = when the driver had answered. */
struct ena_event {
	struct event_header header;
	__u64 value[ENA_N_COUNTERS];
	__u32 ifindex;
	__u32 known; /* bit per counter: the driver has it */
};

#endif
