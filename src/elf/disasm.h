/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disassembly limited to control flow and references to constants: enough to find a function by its
 * strings and to find all its exits.
 */
#ifndef UNDERSPAN_ELF_DISASM_H
#define UNDERSPAN_ELF_DISASM_H

#include "elf/elf_file.h"

/* Limit per range. GC functions have up to 9 KiB in one or two ranges. */
enum { DISASM_MAX_BYTES = 64 << 10 };

enum insn_kind {
	INSN_RETURN,
	INSN_JUMP,	    /* unconditional, to `target` */
	INSN_JUMP_IF,	    /* conditional, to `target` */
	INSN_JUMP_INDIRECT, /* to an address in a register or memory: a switch or a tail call */
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
 * -ENOTSUP: unknown instruction; the bytes after it cannot be decoded.
 */
int disassemble(const struct elf_file *elf, uint64_t start, uint64_t end, struct insns *ret,
		struct why *why);
void insns_free(struct insns *insns);

/* Whether an instruction starts at `va`, decoding from `start`. */
bool disassemble_meets(const struct elf_file *elf, uint64_t start, uint64_t va);

/*
 * arm64 forms an address from a page (ADRP) and an offset (ADD). To be called for all instructions
 * in order; true: the instruction completes the address `*ret`.
 */
struct arm64_pages {
	uint64_t page[32];
	uint32_t known; /* one bit per register */
};
bool arm64_address(struct arm64_pages *pages, uint64_t va, uint32_t word, uint64_t *ret);

/* The target of a direct arm64 branch; false: not a branch. Calls (BL) are not branches. */
bool arm64_branch(uint64_t va, uint32_t word, bool *ret_conditional, uint64_t *ret_target);

#endif
