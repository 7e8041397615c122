/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function with all its moved parts and all exit instructions. Probes at the exits observe the
 * end of the function without changing return addresses.
 */
#ifndef UNDERSPAN_ELF_FUNCTION_BODY_H
#define UNDERSPAN_ELF_FUNCTION_BODY_H

#include "elf/disasm.h"
#include "elf/functions.h"

enum { FUNCTION_MAX_PARTS = 8 };

struct function_body {
	struct function parts[FUNCTION_MAX_PARTS]; /* [0]: the entry */
	size_t n_parts;
	struct insns insns; /* instructions of all parts */
};

/*
 * Follows jumps out of `entry`: a jump into the middle of another table entry, or to an entry that
 * jumps back, leads to a moved part. Needs elf_load_readonly(). -ENOTSUP: machine code cannot be
 * followed. On success free with function_body_free().
 */
int function_body_read(const struct elf_file *elf, const struct functions *functions,
		       const struct function *entry, struct function_body *ret, struct why *why);
void function_body_free(struct function_body *body);

bool function_body_contains(const struct function_body *body, uint64_t va);
/* Whether the body refers to the address `va`. */
bool function_body_refers_to(const struct function_body *body, uint64_t va);

/*
 * Addresses of all returns and of all jumps out of the body (tail calls). Includes indirect jumps,
 * most of them switches: a probe compares the stack pointer, which equals the value at the entry
 * only at an exit. Writes up to `max`, returns the total; -ENOTSUP: conditional tail call, where a
 * probe cannot tell the branch taken.
 */
int function_body_exits(const struct function_body *body, uint64_t *ret, size_t max,
			struct why *why);

#endif
