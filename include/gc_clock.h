/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* The garbage collections of a process, summed: see bpf/python/gc_clock.bpf.h. */
#ifndef UNDERSPAN_GC_CLOCK_H
#define UNDERSPAN_GC_CLOCK_H

#ifndef __bpf__
#include <linux/types.h>
#endif

struct gc_clock {
	__u64 total_ns; /* of all ended collections */
	__u64 since_ns; /* start of the running collection; 0: none */
	__u64 off_ns;	/* off the CPU in the running collection */
	__u32 host_tid; /* the collecting thread */
	__u32 pad;
};

#endif
