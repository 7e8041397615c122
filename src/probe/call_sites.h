/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a program calls a function of another library: found through its relocations, which also a
 * stripped file has, and confirmed by disassembling the function around each call.
 */
#ifndef UNDERSPAN_PROBE_CALL_SITES_H
#define UNDERSPAN_PROBE_CALL_SITES_H

#include "probe/functions.h"

struct call_site {
	uint64_t va;   /* of the call */
	uint64_t next; /* of the instruction that it returns to */
	struct function function;
};

/*
 * The direct calls of `name`, by its own symbol, through the procedure linkage table or the global
 * offset table. Needs elf_load_readonly(). Returns how many were written, at most `max`; -ENOTSUP
 * with why when there are more, or none.
 */
int call_sites_find(const struct elf_file *elf, const struct functions *functions, const char *name,
		    struct call_site *ret, size_t max, struct why *why);

#endif
