// SPDX-License-Identifier: Apache-2.0
/* Division of a memory limit. See memory.h. */
#include "agent/memory.h"

#include "base/log.h"
#include "host/memory_limit.h"

enum { LEAST_LIMIT_MIB = 64 };

/*
 * The remainder is for the program (10 to 20 MiB) and, at the start, for the BPF verifier (about 20
 * MiB), before maps and rows use memory.
 */
uint64_t memory_share_limit(struct pipeline_limits *limits)
{
	uint64_t limit = memory_limit(), rows = limit / 8;

	if (limit == UINT64_MAX)
		return limit;
	if (limits->memory_bytes > rows)
		limits->memory_bytes = rows;
	/* open and closed batches of several tables have to fit */
	if (limits->batch_bytes > limits->memory_bytes / 8)
		limits->batch_bytes = limits->memory_bytes / 8;
	log_info("memory limit of %llu MiB: rows in memory take %llu MiB at most",
		 (unsigned long long)(limit >> 20),
		 (unsigned long long)(limits->memory_bytes >> 20));
	if (limit >> 20 < LEAST_LIMIT_MIB)
		log_warn("a memory limit below %d MiB is too small for all trackers: raise the "
			 "limit, or run fewer trackers (--trackers)",
			 LEAST_LIMIT_MIB);
	return limit * 3 / 8;
}
