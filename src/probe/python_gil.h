/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the GILs of a running interpreter lie: one in _PyRuntime up to 3.11; since 3.12 one for
 * each subinterpreter that has its own, found by the list of interpreters.
 */
#ifndef UNDERSPAN_PROBE_PYTHON_GIL_H
#define UNDERSPAN_PROBE_PYTHON_GIL_H

#include "probe/binaries.h"

/* `runtime`: address of _PyRuntime in the process. Returns how many, 0: none yet, or gone. */
size_t python_gil_find(uint32_t host_pid, uint64_t runtime, const struct python_offsets *offsets,
		       uint64_t *ret_gils, size_t max);

/*
 * Has the binary a GIL to wait for? `ret_base_va`: the file's own address of its beginning.
 * `ret_glibc`: it uses the GNU C library, whose condition variables show the scheduler what a
 * thread waits for; another one's (musl) need not. -ENOTSUP with the reason.
 */
int python_gil_check(const struct python_binary *binary, uint64_t *ret_base_va, bool *ret_glibc,
		     struct why *why);

#endif
