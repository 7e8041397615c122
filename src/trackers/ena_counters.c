// SPDX-License-Identifier: Apache-2.0
/* Names, positions and deltas of the ENA driver's counters. See ena_counters.h. */
#include "trackers/ena_counters.h"

#include <string.h>

static const char *const columns[ENA_N_COUNTERS] = {
#define X(name) #name,
	ENA_COUNTERS(X)
#undef X
};

/* the driver's names, equal to the columns' names */
static const char *sources[ENA_N_COUNTERS];

static int choose(const char *choice, struct why *why)
{
	const char *source = strchr(choice, '=');

	for (size_t i = 0; source && source[1] && i < ENA_N_COUNTERS; i++) {
		size_t len = strlen(columns[i]);

		if (len == (size_t)(source - choice) && !strncmp(choice, columns[i], len)) {
			sources[i] = source + 1;
			return 0;
		}
	}
	return why_fail(why, EINVAL,
			"ena.counters: '%s' is not COLUMN=NAME with a column of ebpf_ena, such as "
			"pps_allowance_exceeded=tx_dropped",
			choice);
}

int ena_counters_choose(const struct string_list *choices, struct why *why)
{
	int err = 0;

	for (size_t i = 0; i < ENA_N_COUNTERS; i++)
		sources[i] = columns[i];
	for (size_t i = 0; !err && i < choices->n; i++)
		err = choose(choices->items[i], why);
	return err;
}

void ena_counters_locate(const struct ethtool_stats_view *view, struct ena_indices *ret)
{
	ret->n_stats = view->n;
	for (size_t i = 0; i < ENA_N_COUNTERS; i++) {
		int index = ethtool_find(view->names, view->n, sources[i]);

		ret->index[i] = index < 0 ? ENA_NO_INDEX : (uint32_t)index;
	}
}

void ena_counters_pick(const struct ethtool_stats_view *view, const struct ena_indices *indices,
		       struct ena_reading *ret)
{
	ret->known = 0;
	for (size_t i = 0; i < ENA_N_COUNTERS; i++) {
		if (indices->index[i] >= view->n)
			continue;
		ret->value[i] = view->values[indices->index[i]];
		ret->known |= 1U << i;
	}
}

/* False for the gauge, which can fall and has no delta. */
static bool is_counter(size_t i)
{
	return i != ENA_conntrack_allowance_available;
}

void ena_counters_compare(const struct ena_reading *last, const struct ena_reading *now,
			  struct ena_change *ret)
{
	uint32_t both = last->ns ? last->known & now->known : 0;

	*ret = (struct ena_change){ .since_ns = last->ns ? last->ns : now->ns };
	if (now->ns < ret->since_ns) {
		ret->since_ns = now->ns;
		return;
	}
	for (size_t i = 0; i < ENA_N_COUNTERS; i++) {
		if (both & 1U << i && is_counter(i) && now->value[i] < last->value[i])
			ret->reset = true;
	}
	for (size_t i = 0; !ret->reset && i < ENA_N_COUNTERS; i++) {
		if (both & 1U << i && is_counter(i))
			ret->delta[i] = (struct column_maybe_u64){
				.value = now->value[i] - last->value[i], .known = true
			};
	}
}
