/* SPDX-License-Identifier: Apache-2.0 */
/* Division of the agent's memory limit at the start. */
#ifndef UNDERSPAN_AGENT_MEMORY_H
#define UNDERSPAN_AGENT_MEMORY_H

#include "pipeline/pipeline.h"

/*
 * Lowers `limits` to the share of rows and returns the share of BPF maps; UINT64_MAX: no limit.
 */
uint64_t memory_share_limit(struct pipeline_limits *limits);

#endif
