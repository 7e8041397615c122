// SPDX-License-Identifier: Apache-2.0
/* Control flow of functions and references to constants. See disasm.h. */
#include "elf/disasm.h"

#include <capstone/capstone.h>
#include <stdlib.h>
#include <string.h>

static int add_insn(struct insns *insns, enum insn_kind kind, uint64_t va, uint64_t target)
{
	if (insns->n == insns->allocated) {
		size_t n = insns->allocated ? insns->allocated * 2 : 256;
		void *items = reallocarray(insns->items, n, sizeof(*insns->items));

		if (!items)
			return -ENOMEM;
		insns->items = items;
		insns->allocated = n;
	}
	insns->items[insns->n++] = (struct insn){ .va = va, .target = target, .kind = kind };
	return 0;
}

void insns_free(struct insns *insns)
{
	free(insns->items);
	*insns = (struct insns){};
}

/* ---- x86-64 ---- */

static int add_x86_jump(struct insns *ret, const cs_insn *insn)
{
	const cs_x86_op *op = &insn->detail->x86.operands[0];
	bool always = insn->id == X86_INS_JMP;

	if (op->type == X86_OP_IMM)
		return add_insn(ret, always ? INSN_JUMP : INSN_JUMP_IF, insn->address,
				(uint64_t)op->imm);
	return add_insn(ret, INSN_JUMP_INDIRECT, insn->address, 0);
}

/* LEA of a RIP-relative address, or MOV of an absolute address (not PIE). */
static int add_x86_reference(struct insns *ret, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;

	for (uint8_t i = 0; i < x86->op_count; i++) {
		const cs_x86_op *op = &x86->operands[i];

		if (insn->id == X86_INS_LEA && op->type == X86_OP_MEM &&
		    op->mem.base == X86_REG_RIP)
			return add_insn(ret, INSN_REFERENCE, insn->address,
					insn->address + insn->size + (uint64_t)op->mem.disp);
		if (insn->id != X86_INS_LEA && op->type == X86_OP_IMM)
			return add_insn(ret, INSN_REFERENCE, insn->address, (uint64_t)op->imm);
	}
	return 0;
}

static int add_x86(struct insns *ret, const cs_insn *insn)
{
	const cs_detail *detail = insn->detail;

	if (insn->id == X86_INS_LEA || insn->id == X86_INS_MOV || insn->id == X86_INS_MOVABS)
		return add_x86_reference(ret, insn);
	for (uint8_t i = 0; i < detail->groups_count; i++) {
		if (detail->groups[i] == CS_GRP_RET)
			return add_insn(ret, INSN_RETURN, insn->address, 0);
		if (detail->groups[i] == CS_GRP_JUMP)
			return add_x86_jump(ret, insn);
	}
	return 0;
}

static int disassemble_x86(const uint8_t *code, uint64_t start, size_t size, struct insns *ret,
			   struct why *why)
{
	uint64_t va = start;
	cs_insn *insn;
	csh handle;
	int err = 0;

	if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle) != CS_ERR_OK)
		return why_fail(why, ENOMEM, "the disassembler (capstone) cannot start");
	cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
	insn = cs_malloc(handle);
	if (!insn) {
		cs_close(&handle);
		return why_fail(why, ENOMEM, "out of memory");
	}
	while (!err && size && cs_disasm_iter(handle, &code, &size, &va, insn))
		err = add_x86(ret, insn);
	cs_free(insn, 1);
	cs_close(&handle);
	if (err)
		return why_fail(why, -err, "out of memory");
	if (size)
		return why_fail(why, ENOTSUP, "unknown machine code at %#llx",
				(unsigned long long)va);
	return 0;
}

static bool meets_x86(const uint8_t *code, uint64_t start, uint64_t va)
{
	size_t size = va - start;
	cs_insn *insn;
	csh handle;

	if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle) != CS_ERR_OK)
		return false;
	insn = cs_malloc(handle);
	while (insn && size && cs_disasm_iter(handle, &code, &size, &start, insn))
		;
	if (insn)
		cs_free(insn, 1);
	cs_close(&handle);
	return insn && !size;
}

/* ---- arm64: fixed-size instructions, a few patterns ---- */

static uint64_t sign_extend(uint64_t v, unsigned int bits)
{
	return (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}

bool arm64_branch(uint64_t va, uint32_t word, bool *ret_conditional, uint64_t *ret_target)
{
	if ((word & 0xfc000000) == 0x14000000) { /* B */
		*ret_conditional = false;
		*ret_target = va + (sign_extend(word & 0x3ffffff, 26) << 2);
		return true;
	}
	*ret_conditional = true;
	if ((word & 0xff000000) == 0x54000000 || /* B.cond, BC.cond */
	    (word & 0x7e000000) == 0x34000000) { /* CBZ, CBNZ */
		*ret_target = va + (sign_extend((word >> 5) & 0x7ffff, 19) << 2);
		return true;
	}
	if ((word & 0x7e000000) == 0x36000000) { /* TBZ, TBNZ */
		*ret_target = va + (sign_extend((word >> 5) & 0x3fff, 14) << 2);
		return true;
	}
	return false;
}

bool arm64_address(struct arm64_pages *pages, uint64_t va, uint32_t word, uint64_t *ret)
{
	unsigned int rd = word & 31, rn = (word >> 5) & 31;
	uint64_t imm = (((word >> 5) & 0x7ffff) << 2) | ((word >> 29) & 3);

	if ((word & 0x9f000000) == 0x90000000) { /* ADRP */
		pages->page[rd] = (va & ~0xfffULL) + (sign_extend(imm, 21) << 12);
		pages->known |= 1u << rd;
		return false;
	}
	if ((word & 0x9f000000) == 0x10000000) { /* ADR */
		*ret = va + sign_extend(imm, 21);
		return true;
	}
	if ((word & 0xffc00000) == 0x91000000 && (pages->known & (1u << rn))) { /* ADD, 64-bit */
		*ret = pages->page[rn] + ((word >> 10) & 0xfff);
		return true;
	}
	return false;
}

static int add_arm64(struct insns *ret, struct arm64_pages *pages, uint64_t va, uint32_t word)
{
	bool conditional;
	uint64_t target;

	if ((word & 0xfffffc1f) == 0xd65f0000 || /* RET */
	    (word & 0xfffffbff) == 0xd65f0bff)	 /* RETAA, RETAB */
		return add_insn(ret, INSN_RETURN, va, 0);
	if ((word & 0xfffffc1f) == 0xd61f0000 || /* BR */
	    (word & 0xfefff800) == 0xd61f0800)	 /* BRAA, BRAB and their zero forms */
		return add_insn(ret, INSN_JUMP_INDIRECT, va, 0);
	if (arm64_branch(va, word, &conditional, &target))
		return add_insn(ret, conditional ? INSN_JUMP_IF : INSN_JUMP, va, target);
	if (arm64_address(pages, va, word, &target))
		return add_insn(ret, INSN_REFERENCE, va, target);
	return 0;
}

static int disassemble_arm64(const uint8_t *code, uint64_t start, size_t size, struct insns *ret,
			     struct why *why)
{
	struct arm64_pages pages = {};

	if (size % 4)
		return why_fail(why, ENOTSUP, "unknown machine code at %#llx",
				(unsigned long long)start);
	for (size_t i = 0; i < size; i += 4) {
		uint32_t word;

		memcpy(&word, code + i, sizeof(word));
		if (add_arm64(ret, &pages, start + i, word))
			return why_fail(why, ENOMEM, "out of memory");
	}
	return 0;
}

int disassemble(const struct elf_file *elf, uint64_t start, uint64_t end, struct insns *ret,
		struct why *why)
{
	size_t size = end - start;
	const uint8_t *code;

	if (end <= start || end - start > DISASM_MAX_BYTES)
		return why_fail(why, ENOTSUP, "a function at %#llx of %llu bytes is not plausible",
				(unsigned long long)start, (unsigned long long)(end - start));
	code = elf_at(elf, start, size);
	if (!code)
		return why_fail(why, EINVAL, "a function at %#llx lies outside the code",
				(unsigned long long)start);
	if (elf->machine == EM_AARCH64)
		return disassemble_arm64(code, start, size, ret, why);
	return disassemble_x86(code, start, size, ret, why);
}

bool disassemble_meets(const struct elf_file *elf, uint64_t start, uint64_t va)
{
	const uint8_t *code;

	if (va < start || va - start > DISASM_MAX_BYTES)
		return false;
	if (va == start || elf->machine == EM_AARCH64)
		return (va - start) % 4 == 0;
	code = elf_at(elf, start, va - start);
	return code && meets_x86(code, start, va);
}
