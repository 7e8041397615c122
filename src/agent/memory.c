// SPDX-License-Identifier: Apache-2.0
/* Division of a memory limit. See memory.h. */
#include "agent/memory.h"

#include "base/log.h"
#include "host/memory_limit.h"

enum { LEAST_LIMIT_MIB = 64 };

/*
 * Use at the start, beside rows and maps with entries: the program with the kernel's types (15
 * MiB), the BPF verifier (23 MiB), and maps with all their memory from the start (10 MiB).
 */
static const uint64_t AT_START = 48 << 20;

static uint64_t share_of_maps(uint64_t limit)
{
	uint64_t most = limit * 3 / 8, least = limit / 4;

	if (limit < AT_START + least)
		return least;
	return most < limit - AT_START ? most : limit - AT_START;
}

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
	return share_of_maps(limit);
}
