/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sanity check of a live interpreter's state at the offsets of the build: the list of threads is
 * compared with the kernel's, and the modules must be a dict with "sys". Without the check, a
 * patched build or an impostor would produce wrong rows.
 */
#ifndef UNDERSPAN_CPYTHON_LIVE_H
#define UNDERSPAN_CPYTHON_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "cpython/remote.h"
#include "python_offsets.h"

/* Result. */
struct python_live {
	uint64_t runtime; /* address of _PyRuntime */
	uint32_t interpreters, threads;
	uint32_t known_threads; /* threads that the kernel lists for the process */
	uint32_t modules;
};

/* Location of the state: all values needed from the file and the build, so that any thread can
 * check. */
struct python_live_location {
	uint64_t dev, ino;	      /* the mapped file */
	uint64_t load_va, runtime_va; /* addresses of the image */
	struct python_offsets offsets;
};

/*
 * 0; -EAGAIN: interpreter not initialized, or changed during the read; -EBADMSG: not an interpreter
 * state; other -errno: unreadable. `why`: the failed check. Bounded reads, about 100 us, without
 * stopping the target. May block on the target's memory.
 */
int python_live_check(uint32_t host_pid, const struct python_live_location *location,
		      struct python_live *ret, struct why *why);

/* The same for any memory; `is_thread`: whether a thread state's ids match a thread. */
typedef bool (*python_is_thread)(struct remote *r, uint64_t native_id, uint64_t ident,
				 void *context);
int python_live_read(struct remote *r, uint64_t runtime, python_is_thread is_thread, void *context,
		     struct python_live *ret, struct why *why);

#endif
