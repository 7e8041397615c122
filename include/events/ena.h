/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Counters of a network driver, read by a third party: bpf/ena.bpf.c -> src/trackers/ena.c. */
#ifndef UNDERSPAN_EVENTS_ENA_H
#define UNDERSPAN_EVENTS_ENA_H

#include "events/event.h"

/* Allowances of an EC2 instance, under the ENA driver's names; append only. */
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

/* Indices of the counters in the driver's statistics; user space finds the indices by name. */
enum { ENA_NO_INDEX = 0xffffffff };
struct ena_indices {
	__u32 n_stats; /* a different number invalidates the indices */
	__u32 index[ENA_N_COUNTERS];
};

/* The header's thread made the query; start = end = time of the driver's answer. */
struct ena_event {
	struct event_header header;
	__u64 value[ENA_N_COUNTERS];
	__u32 ifindex;
	__u32 known; /* bit mask of counters that the driver has */
};

#endif
