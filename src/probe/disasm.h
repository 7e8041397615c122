/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of a function that say where control goes and which constants it refers to:
 * all that is needed to find a function by its strings and to find every way out of it.
 */
#ifndef UNDERSPAN_PROBE_DISASM_H
#define UNDERSPAN_PROBE_DISASM_H

#include "probe/elf_file.h"

/* Of one range. Collectors have up to 9 KiB, in one piece or two; more would cost too much time. */
enum { DISASM_MAX_BYTES = 64 << 10 };

enum insn_kind {
	INSN_RETURN,
	INSN_JUMP,	    /* unconditional, to `target` */
	INSN_JUMP_IF,	    /* conditional, to `target` */
	INSN_JUMP_INDIRECT, /* to where a register or memory says: a switch or a tail call */
	INSN_REFERENCE,	    /* takes the address `target` */
};

struct insn {
	uint64_t va, target;
	enum insn_kind kind;
};

struct insns {
	struct insn *items;
	size_t n, allocated;
};

/*
 * Appends the instructions of the kinds above in [start, end) to `ret`. Needs elf_load_readonly().
 * -ENOTSUP when there are bytes that are no known instruction: nothing is known then about what
 * follows them.
 */
int disassemble(const struct elf_file *elf, uint64_t start, uint64_t end, struct insns *ret,
		struct why *why);
void insns_free(struct insns *insns);

/* Does an instruction begin at `va`, when the first one begins at `start`? */
bool disassemble_meets(const struct elf_file *elf, uint64_t start, uint64_t va);

/*
 * arm64 builds an address from a page (ADRP) and an offset within it (ADD): feed it all
 * instructions in order; true when this one completes the address `*ret`.
 */
struct arm64_pages {
	uint64_t page[32];
	uint32_t known; /* bit per register */
};
bool arm64_address(struct arm64_pages *pages, uint64_t va, uint32_t word, uint64_t *ret);

/* The target of a direct arm64 branch; false when `word` is none. Calls (BL) are none. */
bool arm64_branch(uint64_t va, uint32_t word, bool *ret_conditional, uint64_t *ret_target);

#endif
