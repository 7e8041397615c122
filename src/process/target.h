/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python processes whose memory is read: address of the runtime, cached thread names (rows/names.c)
 * and code locations (rows/stack.c). Created by the first row; kept after the process's end for its
 * last rows.
 */
#ifndef UNDERSPAN_PROCESS_TARGET_H
#define UNDERSPAN_PROCESS_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "cpython/threads.h"
#include "python_offsets.h"

struct known_thread;
struct known_frame;

/* Written by jobs only, one at a time. */
struct target_learned {
	uint64_t runtime_address; /* of _PyRuntime, from the mapping; 0: unknown */
	uint64_t runtime;	  /* the same, with an interpreter; 0: not found */
	uint64_t look_again_ns;	  /* next search for the runtime or for threading */
	uint32_t misses;
	struct python_threads threads;
};

/* Input of jobs, and `learned`, returned from a reader process. Other members are constant. */
struct target_memory {
	uint32_t host_pid;
	struct python_offsets offsets;
	uint64_t dev, ino, load_va, runtime_va; /* the interpreter's file */
	struct target_learned learned;
};

struct target {
	uint32_t host_pid;
	struct target_memory memory; /* `learned` is written by jobs */

	/* the collector's */
	uint64_t gone_ns; /* time of exit or exec(); 0: alive */
	/* rows/names.c's; the function frees them before the target is */
	struct known_thread *known_threads;
	void (*forget_threads)(struct target *target);
	/* rows/stack.c's */
	struct known_frame *known_frames;
	size_t frames_bytes; /* size of known_frames */
	void (*forget_frames)(struct target *target);
	struct token_bucket frames_bucket;
	size_t holds;
	bool dropped; /* freed with the last reference */
	UT_hash_handle hh;
};

/*
 * The process of an event at `event_ns`; NULL: not a readable Python. If gone_ns is set, only
 * cached data may be used.
 */
struct target *target_get(uint32_t host_pid, uint64_t event_ns);

/* Holds a reference during a job. */
void target_hold(struct target *target);
void target_release(struct target *target);

/* In a reader process: address of _PyRuntime; 0: file not mapped so far. */
uint64_t target_runtime_address(struct target_memory *target);

/* In a reader process: finds runtime and threading._active if needed; false: not found now. */
bool target_find_runtime(struct target_memory *target, uint64_t now_ns);
bool target_find_threads(struct target_memory *target, uint64_t now_ns);

void target_gone(uint32_t host_pid);

/* Frees processes ended a while ago. */
void targets_tick(uint64_t now_ns);
/* Head of the table, for HASH_ITER. */
struct target *targets_all(void);
void targets_done(void);

#endif
