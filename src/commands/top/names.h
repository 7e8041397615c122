/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a window by host pid: name and service. Where two windows are compared, the
 * processes of a service (or, without one, of a name) are a group: pids change with each start.
 */
#ifndef UNDERSPAN_COMMANDS_TOP_NAMES_H
#define UNDERSPAN_COMMANDS_TOP_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

struct top_name {
	uint32_t host_pid;
	uint32_t group;	       /* 0: not yet */
	bool main;	       /* comm is the main thread's */
	unsigned int measured; /* for the caller */
	char comm[64], service[64];
	UT_hash_handle hh;
};

/* Groups of both windows, numbered from 1. */
struct top_groups {
	struct top_group *items;
};

struct top_names {
	struct top_name *items;
	struct top_groups *groups; /* NULL: each process is its own */
};

/* Members of a row: host_pid, comm, service, and optionally main. NULL: no place. */
struct top_name *top_names_note(struct top_names *names, const json_t *row);

/* NULL: not noted. */
struct top_name *top_names_find(const struct top_names *names, uint32_t host_pid);

/* The number by which the process is listed: its host pid, or its group. After all rows of a
 * question are noted. */
uint32_t top_names_number(struct top_names *names, struct top_name *of);

/* How many processes have the number. */
uint32_t top_names_count(const struct top_names *names, uint32_t number);

void top_names_free(struct top_names *names);
void top_groups_free(struct top_groups *groups);

#endif
