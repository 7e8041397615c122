/* SPDX-License-Identifier: Apache-2.0 */
/* A memory limit of the agent, shared out before it begins to take memory. */
#ifndef UNDERSPAN_AGENT_MEMORY_H
#define UNDERSPAN_AGENT_MEMORY_H

#include "pipeline/pipeline.h"

/*
 * Lowers what rows may take to their share and returns the share of BPF maps; UINT64_MAX where
 * there is no limit.
 */
uint64_t memory_share_limit(struct pipeline_limits *limits);

#endif
