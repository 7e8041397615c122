/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python processes whose memory is read: where their runtime lies, and what was learned of
 * them: names of threads (names.c), lines of code (stack.c). One is made when the first row asks
 * for it; what was learned outlives the process for the moment that its last rows take.
 */
#ifndef UNDERSPAN_PYTHON_TARGET_H
#define UNDERSPAN_PYTHON_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "python/threads.h"
#include "python_offsets.h"

struct known_thread;
struct known_frame;

struct target {
	uint32_t host_pid;
	struct python_offsets offsets;
	uint64_t dev, ino, load_va, runtime_va; /* of the file that holds the interpreter */

	/* the collector's */
	uint64_t gone_ns; /* when it ended or became another program; 0: it lives */
	struct known_thread *known_threads; /* names.c */
	struct known_frame *known_frames;   /* stack.c */
	size_t frames_bytes;		    /* of these */
	struct allowance frames_share;
	size_t holds;
	bool dropped; /* freed when nobody holds it any more */
	UT_hash_handle hh;

	/* the jobs': one of them is running at a time */
	uint64_t runtime_address; /* of _PyRuntime, by the file's place in memory; 0: not known yet
				   */
	uint64_t runtime;	  /* the same, where an interpreter is; 0: not found yet */
	uint64_t look_again_ns;	  /* for the runtime, or for threading */
	uint32_t misses;
	struct python_threads threads;
};

/*
 * The process that an event of `event_ns` came from; NULL when it is no Python that can be read.
 * Where gone_ns is set only what is known already may be used.
 */
struct target *target_get(uint32_t host_pid, uint64_t event_ns);

/* While a job of it is with the readers. */
void target_hold(struct target *target);
void target_release(struct target *target);

/* In a job: where _PyRuntime is or is going to be; 0: the file is not mapped yet. */
uint64_t target_runtime_address(struct target *target);

/* In a job: finds the runtime and threading._active if need be; false: they are not there (yet). */
bool target_find_runtime(struct target *target, uint64_t now_ns);
bool target_find_threads(struct target *target, uint64_t now_ns);

void target_gone(uint32_t host_pid);

/* Frees those that are gone for a while. */
void targets_tick(uint64_t now_ns);
void targets_done(void);

#endif
