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
 * Can waits for the GIL of this binary be read off the scheduler? `ret_base_va`: the file's own
 * address of its beginning. -ENOTSUP with the reason.
 */
int python_gil_check(const struct python_binary *binary, uint64_t *ret_base_va, struct why *why);

/*
 * The reference method's probes: the entries of take_gil() and all its exits, by symbol. Writes
 * up to `max` file offsets each. -ENOTSUP with the reason.
 */
struct take_gil_sites {
	uint64_t entry[8], exit[64];
	size_t n_entry, n_exit;
};
int python_take_gil_find(const struct python_binary *binary, struct take_gil_sites *ret,
			 struct why *why);

#endif
