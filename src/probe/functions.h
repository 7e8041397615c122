/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the functions of a program begin and end: from its symbol table or, when that was
 * stripped, from its unwind table. A compiler may move unlikely code out of a function; such a
 * part is an entry of its own here.
 */
#ifndef UNDERSPAN_PROBE_FUNCTIONS_H
#define UNDERSPAN_PROBE_FUNCTIONS_H

#include "probe/elf_file.h"

struct function {
	uint64_t start, end; /* addresses, end exclusive */
	bool is_part;	     /* known to be a moved part, not to be called */
};

struct functions {
	struct function *items; /* sorted by start, each start once */
	size_t n, allocated;
};

int functions_from_symbols(const struct elf_symbols *symbols, struct functions *ret,
			   struct why *why);
/* Needs elf_load_readonly(). */
int functions_from_unwind_table(const struct elf_file *elf, struct functions *ret, struct why *why);
void functions_free(struct functions *functions);

/* The entry that `va` lies in, or NULL. */
const struct function *functions_find(const struct functions *functions, uint64_t va);

/* For builders: appends, does not sort. */
int functions_add(struct functions *functions, struct function f);

#endif
