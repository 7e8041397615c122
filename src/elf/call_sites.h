/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites of an imported function: found through relocations, which stripped files keep, and
 * confirmed by disassembling the surrounding function.
 */
#ifndef UNDERSPAN_ELF_CALL_SITES_H
#define UNDERSPAN_ELF_CALL_SITES_H

#include "elf/functions.h"

struct call_site {
	uint64_t va;   /* address of the call */
	uint64_t next; /* return address */
	struct function function;
};

/*
 * Finds direct calls of `name`: by symbol, through the PLT or through the GOT. Needs
 * elf_load_readonly(). Returns the number of sites, at most `max`; -ENOTSUP with why: more than
 * `max`, or none.
 */
int call_sites_find(const struct elf_file *elf, const struct functions *functions, const char *name,
		    struct call_site *ret, size_t max, struct why *why);

#endif
