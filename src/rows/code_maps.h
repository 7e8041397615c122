/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable mappings of processes, read by jobs and cached; kept for a while after exit or exec()
 * for late events.
 */
#ifndef UNDERSPAN_ROWS_CODE_MAPS_H
#define UNDERSPAN_ROWS_CODE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/util.h"
#include "host/code_map.h"

/* Limits re-reads for a process with addresses outside of known mappings. */
#define CODE_MAPS_REREAD_NS NSEC_PER_SEC

struct process_maps {
	uint32_t host_pid;
	uint64_t read_ns;
	uint64_t gone_ns; /* time of exit or exec(); 0: alive */
	bool being_read;
	struct mapping *items;
	size_t n;
	struct process_maps *next_retired;
	UT_hash_handle hh;
};

/* NULL: not cached. */
struct process_maps *code_maps_find(uint32_t host_pid);

/* Starts to read the mappings of a process that is not cached. NULL: out of memory. */
struct process_maps *code_maps_of(uint32_t host_pid);

/* Starts to read the mappings again; without effect during a read. */
void code_maps_read(struct process_maps *maps, uint64_t now_ns);

void code_maps_process_gone(uint32_t host_pid);

/* Frees mappings with names borrowed by the previous row. */
void code_maps_free_retired(void);

/* Names are borrowed until code_maps_free_retired(). */
void code_maps_forget_all(void);

#endif
