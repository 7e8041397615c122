/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allowance counters of the ENA driver: where they lie among the driver's statistics, and what
 * lies between two readings of them.
 */
#ifndef UNDERSPAN_ENA_COUNTERS_H
#define UNDERSPAN_ENA_COUNTERS_H

#include "config.h"
#include "events/ena.h"
#include "pipeline/column.h"
#include "probe/ethtool.h"

struct ena_reading {
	uint64_t ns; /* CLOCK_MONOTONIC; 0: never read */
	uint64_t value[ENA_N_COUNTERS];
	uint32_t known; /* bit per counter */
};

/* What happened from one reading to the next. */
struct ena_change {
	uint64_t since_ns;
	struct column_maybe_u64 delta[ENA_N_COUNTERS];
	bool reset;
};

/*
 * `sources`: "COLUMN=NAME", the column is filled from the statistic NAME instead of the one it is
 * called after. Borrows the list. Returns 0 or -EINVAL.
 */
int ena_counters_choose(const struct string_list *sources, struct why *why);

/* Finds the counters by name; those that are missing get ENA_NO_PLACE. */
void ena_counters_locate(const struct ethtool_stats_view *view, struct ena_places *ret);

void ena_counters_pick(const struct ethtool_stats_view *view, const struct ena_places *places,
		       struct ena_reading *ret);

/*
 * A counter that is smaller than before was reset with its device: all of them began anew at a
 * moment nobody saw, so that no delta is known (the totals say what has come together since). A
 * reading that is older than `last` lies in an interval that has its deltas already, and has none
 * of its own.
 */
void ena_counters_compare(const struct ena_reading *last, const struct ena_reading *now,
			  struct ena_change *ret);

#endif
