// SPDX-License-Identifier: Apache-2.0
/* The shares of a memory limit. See memory.h. */
#include "agent/memory.h"

#include "log.h"
#include "probe/memory_limit.h"

enum { LEAST_LIMIT_MIB = 64 };

/*
 * The rest is for the program itself (10 to 20 MiB) and, at the start, for the kernel's check of
 * the BPF programs (some 20 MiB): maps and rows have taken nothing yet then.
 */
uint64_t memory_share_limit(struct pipeline_limits *limits)
{
	uint64_t limit = memory_limit(), rows = limit / 8;

	if (limit == UINT64_MAX)
		return limit;
	if (limits->memory_bytes > rows)
		limits->memory_bytes = rows;
	/* several tables' batches have to fit, open ones and closed ones */
	if (limits->batch_bytes > limits->memory_bytes / 8)
		limits->batch_bytes = limits->memory_bytes / 8;
	log_info("memory limit of %llu MiB: rows in memory take %llu MiB at most",
		 (unsigned long long)(limit >> 20),
		 (unsigned long long)(limits->memory_bytes >> 20));
	if (limit >> 20 < LEAST_LIMIT_MIB)
		log_warn("a memory limit below %d MiB is too little for all trackers: raise it, or "
			 "leave some out (--trackers)",
			 LEAST_LIMIT_MIB);
	return limit * 3 / 8;
}
