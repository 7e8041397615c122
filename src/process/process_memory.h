/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a Python process, as reader processes see it: the interpreter's addresses, kept from
 * job to job.
 */
#ifndef UNDERSPAN_PROCESS_PROCESS_MEMORY_H
#define UNDERSPAN_PROCESS_PROCESS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "cpython/threads.h"
#include "python_offsets.h"

/* Written by jobs only, one at a time. */
struct process_learned {
	uint64_t runtime_address; /* of _PyRuntime, from the mapping; 0: unknown */
	uint64_t runtime;	  /* the same, with an interpreter; 0: not found */
	uint64_t look_again_ns;	  /* next search for the runtime or for threading */
	uint32_t misses;
	struct python_threads threads;
};

/* Input of jobs, and `learned`, returned from a reader process. Other members are constant. */
struct process_memory {
	uint32_t host_pid;
	struct python_offsets offsets;
	uint64_t dev, ino, load_va, runtime_va; /* the interpreter's file */
	struct process_learned learned;
};

/* In a reader process: address of _PyRuntime; 0: file not mapped so far. */
uint64_t process_memory_runtime_address(struct process_memory *memory);

/* In a reader process: finds runtime and threading._active if needed; false: not found now. */
bool process_memory_find_runtime(struct process_memory *memory, uint64_t now_ns);
bool process_memory_find_threads(struct process_memory *memory, uint64_t now_ns);

#endif
