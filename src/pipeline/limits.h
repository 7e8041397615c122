/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a pipeline. */
#ifndef UNDERSPAN_PIPELINE_LIMITS_H
#define UNDERSPAN_PIPELINE_LIMITS_H

#include <stdint.h>

#include "base/option.h"
#include "pipeline/spool/spool.h"

struct pipeline_limits {
	uint64_t batch_rows;
	uint64_t batch_bytes; /* uncompressed */
	uint64_t batch_age_ns;
	uint64_t memory_bytes;	       /* all rows in memory, in open and closed batches */
	struct string_list shed_first; /* trackers, in order of shedding at memory_bytes */
	struct spool_options spool;
};

#endif
