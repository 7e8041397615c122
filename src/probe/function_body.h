/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function with all parts that the compiler moved out of it, and every instruction at which it
 * is left. A probe there sees the function end without touching return addresses.
 */
#ifndef UNDERSPAN_PROBE_FUNCTION_BODY_H
#define UNDERSPAN_PROBE_FUNCTION_BODY_H

#include "probe/disasm.h"
#include "probe/functions.h"

enum { FUNCTION_MAX_PARTS = 8 };

struct function_body {
	struct function parts[FUNCTION_MAX_PARTS]; /* [0]: where it is entered */
	size_t n_parts;
	struct insns insns; /* of all parts */
};

/*
 * Follows the jumps that leave `entry`: one into the middle of another entry of the table, or
 * into an entry that jumps back, leads to a part. Needs elf_load_readonly(). -ENOTSUP when the
 * machine code cannot be followed. `ret` needs function_body_free() after 0.
 */
int function_body_read(const struct elf_file *elf, const struct functions *functions,
		       const struct function *entry, struct function_body *ret, struct why *why);
void function_body_free(struct function_body *body);

bool function_body_contains(const struct function_body *body, uint64_t va);
/* Does it take the address `va`? */
bool function_body_refers_to(const struct function_body *body, uint64_t va);

/*
 * The addresses of all returns and of all jumps that leave the body (tail calls). Indirect jumps
 * are among them although most are switches: a probe tells the two apart by the stack pointer,
 * which only at an exit equals that at the entry. Writes up to `max`, returns how many there are;
 * -ENOTSUP for a conditional tail call, which no probe can tell from its other branch.
 */
int function_body_exits(const struct function_body *body, uint64_t *ret, size_t max,
			struct why *why);

#endif
