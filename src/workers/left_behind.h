/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hung reader processes outlive the agent. The next agent adds the remaining readers to its count,
 * so that restarts do not increase the number on the host.
 */
#ifndef UNDERSPAN_WORKERS_LEFT_BEHIND_H
#define UNDERSPAN_WORKERS_LEFT_BEHIND_H

#include <stddef.h>
#include <stdint.h>

#define READER_NAME	 "underspan:read"
#define FORK_SERVER_NAME "underspan:fork"

struct left_behind {
	int pidfd;
	uint64_t owner; /* proc_owner() of the process being read; 0: unknown */
};

/* Killed but not ended reader processes of earlier agents, at most `max`. */
size_t readers_left_behind(struct left_behind *ret, size_t max);

/* In a reader process: records the target process before a read (0: none). */
void left_behind_label(uint32_t host_pid);

#endif
