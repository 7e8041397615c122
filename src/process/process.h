/* SPDX-License-Identifier: Apache-2.0 */
/* A Python process, and look-up by pid. Collector thread only. */
#ifndef UNDERSPAN_PROCESS_PROCESS_H
#define UNDERSPAN_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "base/util.h"
#include "cpython/live.h"
#include "process/binary.h"

struct process {
	uint32_t host_pid;
	struct binary_file file; /* .binary NULL: refused, see `refused` */
	struct why refused;
	struct python_live live; /* .threads 0: not checked, or see `unread` */
	struct why unread;
	uint32_t invalid_reads;
	bool unread_reported; /* checked() was called with `unread`, and checks continue */
	/* grace_period.c's */
	uint64_t serial;
	bool reportable, check_waits;
	struct state_check *check; /* pending check; owned by state_check.c */
	UT_hash_handle hh;
};

/* The Python process of this pid; NULL: none. */
const struct process *processes_find(uint32_t host_pid);

size_t processes_count(void);

#endif
