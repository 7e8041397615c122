// SPDX-License-Identifier: Apache-2.0
/* Counters of the agent. See counts.h. */
#include "agent/counts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const struct agent_count agent_count_list[N_AGENT_COUNTS] = {
#define X(name_, kind_, what_) { #name_, offsetof(struct agent_counts, name_), kind_, what_ },
	AGENT_COUNTS(X)
#undef X
};

void agent_counts_since(const struct agent_counts *now, const struct agent_counts *before,
			struct agent_counts *ret)
{
	for (size_t i = 0; i < N_AGENT_COUNTS; i++) {
		uint64_t value = agent_count_of(now, i);

		if (agent_count_list[i].kind != COUNT_GAUGE)
			value -= agent_count_of(before, i);
		*(uint64_t *)((char *)ret + agent_count_list[i].offset) = value;
	}
}

/* "1 row with <gone>" */
static size_t print_count(char *buf, size_t size, uint64_t n, const char *what)
{
	bool one = n == 1 && !strncmp(what, "rows ", 5);

	return (size_t)snprintf(buf, size, "%llu %s%s", (unsigned long long)n, one ? "row" : "",
				what + (one ? 4 : 0));
}

const char *agent_counts_list(const struct agent_counts *counts, enum agent_count_kind kind,
			      char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < N_AGENT_COUNTS && len < size; i++) {
		uint64_t n = agent_count_of(counts, i);

		if (agent_count_list[i].kind != kind || !n)
			continue;
		if (len)
			len += (size_t)snprintf(buf + len, size - len, ", ");
		if (len < size)
			len += print_count(buf + len, size - len, n, agent_count_list[i].what);
	}
	return buf;
}
