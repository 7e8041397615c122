/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allowance counters of the ENA driver: positions in the driver's statistics, and deltas of two
 * readings.
 */
#ifndef UNDERSPAN_TRACKERS_ENA_COUNTERS_H
#define UNDERSPAN_TRACKERS_ENA_COUNTERS_H

#include "base/config.h"
#include "events/ena.h"
#include "rows/column.h"
#include "host/ethtool.h"

struct ena_reading {
	uint64_t ns; /* CLOCK_MONOTONIC; 0: never read */
	uint64_t value[ENA_N_COUNTERS];
	uint32_t known; /* one bit per counter */
};

/* Changes between two readings. */
struct ena_change {
	uint64_t since_ns;
	struct column_maybe_u64 delta[ENA_N_COUNTERS];
	bool reset;
};

/*
 * `sources`: "COLUMN=NAME" fills the column from statistic NAME instead of its default. Borrows the
 * list. 0 or -EINVAL.
 */
int ena_counters_choose(const struct string_list *sources, struct why *why);

/* Finds the counters by name; missing counters get ENA_NO_INDEX. */
void ena_counters_locate(const struct ethtool_stats_view *view, struct ena_indices *ret);

void ena_counters_pick(const struct ethtool_stats_view *view, const struct ena_indices *indices,
		       struct ena_reading *ret);

/*
 * A counter smaller than before was reset with its device at an unknown time: no delta is known
 * (totals count since the reset). A reading older than `last` belongs to an interval with known
 * deltas and gets none.
 */
void ena_counters_compare(const struct ena_reading *last, const struct ena_reading *now,
			  struct ena_change *ret);

#endif
