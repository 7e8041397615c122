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

/*
 * 0; -EAGAIN when the interpreter is not up yet, or changed while it was read; -EBADMSG when what
 * is there is no such state, whatever it is; another -errno when it could not be read. `why` says
 * what was wrong. Bounded reads, some 100 us; the target goes on.
 */
int python_live_check(uint32_t host_pid, const struct binary_file *file, struct python_live *ret,
		      struct why *why);

/* The same of memory from anywhere: `is_thread` says whether a thread state's ids are a thread's.
 */
typedef bool (*python_is_thread)(struct remote *r, uint64_t native_id, uint64_t ident,
				 void *context);
int python_live_look(struct remote *r, uint64_t runtime, python_is_thread is_thread, void *context,
		     struct python_live *ret, struct why *why);

#endif
