/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take_gil(), CPython's function that waits for the GIL. Not exported: found by symbol or, in
 * stripped files, as the only caller of pthread_cond_timedwait() in CPython on Linux.
 */
#ifndef UNDERSPAN_CPYTHON_TAKE_GIL_H
#define UNDERSPAN_CPYTHON_TAKE_GIL_H

#include <stddef.h>
#include <stdint.h>

#include "workers/file_reading.h"

/* File offsets of the instructions to probe. */
struct take_gil_bounds {
	uint64_t entry[8], exit[64]; /* entries and exits of the function and its clones */
	size_t n_entry, n_exit;
};

/* -ENOTSUP with the reason. */
int take_gil_find_bounds(const struct readable_file *file, struct take_gil_bounds *ret,
			 struct why *why);

/* Calls in which take_gil() sleeps, reached only under contention; first argument &gil->cond. */
struct take_gil_waits {
	uint64_t call[8], resume[8]; /* call and return addresses */
	size_t n;
};
int take_gil_find_waits(const struct readable_file *file, struct take_gil_waits *ret,
			struct why *why);

#endif
