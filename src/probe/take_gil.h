/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take_gil(), the function of CPython in which threads wait for the GIL. It is not exported: found
 * by symbol, or in a stripped file as what calls pthread_cond_timedwait(), which nothing else in
 * CPython does on Linux.
 */
#ifndef UNDERSPAN_PROBE_TAKE_GIL_H
#define UNDERSPAN_PROBE_TAKE_GIL_H

#include "probe/binaries.h"

/* File offsets of the instructions to probe. */
struct take_gil_bounds {
	uint64_t entry[8], exit[64]; /* of the function and its clones */
	size_t n_entry, n_exit;
};

/* -ENOTSUP with the reason. */
int take_gil_find_bounds(const struct python_binary *binary, struct take_gil_bounds *ret,
			 struct why *why);

/* The calls in which it sleeps: &gil->cond is the first argument. Only reached under contention. */
struct take_gil_waits {
	uint64_t call[8], resume[8]; /* the call, and the instruction behind it */
	size_t n;
};
int take_gil_find_waits(const struct python_binary *binary, struct take_gil_waits *ret,
			struct why *why);

#endif
