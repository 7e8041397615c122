/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of the GILs of a process: up to 3.11 a single GIL in _PyRuntime; since 3.12 also those
 * of subinterpreters with an own GIL, found by the list of interpreters.
 */
#ifndef UNDERSPAN_CPYTHON_GIL_H
#define UNDERSPAN_CPYTHON_GIL_H

#include "cpython/image.h"
#include "python_offsets.h"
#include "workers/file_reading.h"

/* `runtime`: address of _PyRuntime in the process. Returns the number; 0: not initialized, or the
 * process is gone. */
size_t python_gil_find(uint32_t host_pid, uint64_t runtime, const struct python_offsets *offsets,
		       uint64_t *ret_gils, size_t max);

/*
 * Whether the binary has a GIL. `ret_glibc`: uses glibc, with condition variables by which the
 * scheduler tracepoints identify a GIL wait; further C libraries (musl) may not. -ENOTSUP with the
 * reason.
 */
int python_gil_check(const struct python_image *image, const struct readable_file *file,
		     bool *ret_glibc, struct why *why);

#endif
