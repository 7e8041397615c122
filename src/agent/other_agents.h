/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents of this host (`underspan run`): two that watch the same processes for one database write
 * each row twice. Thread: the collector.
 */
#ifndef UNDERSPAN_AGENT_OTHER_AGENTS_H
#define UNDERSPAN_AGENT_OTHER_AGENTS_H

#include "agent/agent_line.h"

struct other_agent {
	uint32_t pid;
	uint64_t start_time;
	struct agent_line line;
};

enum { OTHER_AGENTS_MAX = 16 };

/* What follows, for a sentence that names the agents. */
#define OTHER_AGENTS_ADVICE                                                                        \
	"if both write into one database, each row is there twice: stop one of them, or give "     \
	"them different databases or different processes (--pid)"

/* The agents but this process that write for a database; their number. */
size_t other_agents_find(struct other_agent ret[OTHER_AGENTS_MAX]);

/* At the start and from time to time: warns of another agent, once. */
void other_agents_tick(uint64_t now_ns);

#endif
