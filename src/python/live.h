/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the state of a running interpreter make sense where its build is said to keep it? Its list
 * of threads is compared with the kernel's, its modules have to be a dict that has "sys". Without
 * this a build that was patched, or a process that only looks like Python, would give wrong rows.
 */
#ifndef UNDERSPAN_PYTHON_LIVE_H
#define UNDERSPAN_PYTHON_LIVE_H

#include "probe/binaries.h"
#include "python/remote.h"

/* What was seen. */
struct python_live {
	uint64_t runtime; /* address of _PyRuntime */
	uint32_t interpreters, threads;
	uint32_t known_threads; /* of these, those that the kernel knows as this process's */
	uint32_t modules;
};

/* Where to look: what of a binary_file and its binary is needed, so that any thread can. */
struct python_live_place {
	uint64_t dev, ino;	      /* of the file, as the process has it */
	uint64_t load_va, runtime_va; /* of its image */
	struct python_offsets offsets;
};
struct python_live_place python_live_place_of(const struct binary_file *file);

/*
 * 0; -EAGAIN when the interpreter is not up yet, or changed while it was read; -EBADMSG when what
 * is there is no such state, whatever it is; another -errno when it could not be read. `why` says
 * what was wrong. Bounded reads, some 100 us; the target goes on. May have to wait for it.
 */
int python_live_check(uint32_t host_pid, const struct python_live_place *place,
		      struct python_live *ret, struct why *why);

/* The same of memory from anywhere: `is_thread` says whether a thread state's ids are a thread's.
 */
typedef bool (*python_is_thread)(struct remote *r, uint64_t native_id, uint64_t ident,
				 void *context);
int python_live_look(struct remote *r, uint64_t runtime, python_is_thread is_thread, void *context,
		     struct python_live *ret, struct why *why);

#endif
