/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* gil_wait's ring buffer and counters. */
#ifndef UNDERSPAN_GIL_WAIT_EVENTS_BPF_H
#define UNDERSPAN_GIL_WAIT_EVENTS_BPF_H

#include "lib/event.bpf.h"

TRACKER_MAPS(gil_wait_);

static __always_inline void gil_stat(__u32 stat, __u64 n)
{
	stat_add_in(&gil_wait_stats, stat, n);
}

/* Counts a wait that reached neither a row nor a sum. */
static __always_inline void gil_lost(void)
{
	gil_stat(STAT_SEEN, 1);
	gil_stat(STAT_LOST_STATE, 1);
}

#endif
