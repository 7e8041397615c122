// SPDX-License-Identifier: Apache-2.0
/* Call sites of an imported function. See call_sites.h. */
#include "elf/call_sites.h"

#include <string.h>

#include "elf/disasm.h"

enum {
	MAX_SLOTS = 8,
	ARM64_STUB_INSNS = 6,
	MAX_CHECKED = 1024, /* candidates to disassemble */
	MAX_RELOCATION_BYTES = 32 << 20,
};

/* Targets of a call of the function. */
struct callee {
	uint64_t slots[MAX_SLOTS]; /* GOT slots, filled in by the dynamic loader */
	size_t n_slots;
	uint64_t va; /* the function's address in this file; 0: imported */
};

struct search {
	const struct elf_file *elf;
	const struct functions *functions;
	struct callee callee;
	struct call_site *sites;
	size_t n, max, n_checked;
};

/* ---- the function ---- */

static void add_slots(const struct elf_file *elf, const Elf64_Shdr *section,
		      const struct elf_symbols *symbols, const char *name, struct callee *callee,
		      uint64_t *bytes_left)
{
	size_t n = section->sh_size / sizeof(Elf64_Rela);
	const Elf64_Rela *relocations;

	if (*bytes_left < section->sh_size || section->sh_offset % _Alignof(Elf64_Rela))
		return;
	*bytes_left -= section->sh_size;
	relocations = elf_map(elf, section->sh_offset, section->sh_size);

	for (size_t i = 0; relocations && i < n && callee->n_slots < MAX_SLOTS; i++) {
		uint64_t symbol = ELF64_R_SYM(relocations[i].r_info);

		if (symbol && symbol < symbols->n &&
		    elf_name_is(elf_symbol_name(symbols, &symbols->items[symbol]), name))
			callee->slots[callee->n_slots++] = relocations[i].r_offset;
	}
	elf_unmap(relocations, section->sh_size);
}

static void find_callee(const struct elf_file *elf, const char *name, struct callee *ret)
{
	static const uint32_t tables[] = { SHT_DYNSYM, SHT_SYMTAB };
	uint64_t bytes_left = MAX_RELOCATION_BYTES;
	struct elf_symbols symbols;

	*ret = (struct callee){};
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		if (elf_symbols_load(elf, tables[i], &symbols))
			continue;
		if (!ret->va)
			elf_symbol_find(&symbols, name, &ret->va);
		for (size_t k = 0; tables[i] == SHT_DYNSYM && k < elf->n_sections; k++) {
			if (elf->sections[k].sh_type == SHT_RELA)
				add_slots(elf, &elf->sections[k], &symbols, name, ret, &bytes_left);
		}
		elf_symbols_free(&symbols);
	}
}

static bool is_slot(const struct callee *callee, uint64_t va)
{
	for (size_t i = 0; i < callee->n_slots; i++) {
		if (callee->slots[i] == va)
			return true;
	}
	return false;
}

/* ---- x86-64 ---- */

static uint64_t relative(uint64_t next, const uint8_t *p)
{
	int32_t distance;

	memcpy(&distance, p, sizeof(distance));
	return next + (uint64_t)(int64_t)distance;
}

/* A PLT stub: optional endbr64, then a jump through a slot, with an optional bnd prefix. */
static bool x86_stub_leads_to(const struct search *search, uint64_t va)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	const uint8_t *p = elf_at(search->elf, va, 11);
	size_t at = 0;

	if (!p)
		return false;
	if (!memcmp(p, endbr64, sizeof(endbr64)))
		at += sizeof(endbr64);
	if (p[at] == 0xf2) /* bnd */
		at++;
	return p[at] == 0xff && p[at + 1] == 0x25 &&
	       is_slot(&search->callee, relative(va + at + 6, p + at + 2));
}

/* Length of the call at `va` if it calls the function; 0 otherwise. */
static size_t x86_call_size(const struct search *search, uint64_t va, const uint8_t *p, size_t left)
{
	uint64_t target;

	if (left >= 5 && p[0] == 0xe8) {
		target = relative(va + 5, p + 1);
		if ((search->callee.va && target == search->callee.va) ||
		    x86_stub_leads_to(search, target))
			return 5;
	}
	if (left >= 6 && p[0] == 0xff && p[1] == 0x15 &&
	    is_slot(&search->callee, relative(va + 6, p + 2)))
		return 6;
	return 0;
}

/* ---- arm64 ---- */

/* A PLT stub: optional BTI, then ADRP and LDR of a slot. */
static bool arm64_stub_leads_to(const struct search *search, uint64_t va)
{
	const uint8_t *p = elf_at(search->elf, va, ARM64_STUB_INSNS * 4);
	struct arm64_pages pages = {};

	for (size_t i = 0; p && i < ARM64_STUB_INSNS; i++) {
		uint64_t address;
		uint32_t word;

		memcpy(&word, p + 4 * i, sizeof(word));
		arm64_address(&pages, va + 4 * i, word, &address);
		/* LDR Xt, [Xn, #imm] */
		if ((word & 0xffc00000) == 0xf9400000 && pages.known & (1u << ((word >> 5) & 31)))
			return is_slot(&search->callee,
				       pages.page[(word >> 5) & 31] + ((word >> 10) & 0xfff) * 8);
	}
	return false;
}

static size_t arm64_call_size(const struct search *search, uint64_t va, const uint8_t *p,
			      size_t left)
{
	bool conditional;
	uint64_t target;
	uint32_t word;

	if (va % 4 || left < 4)
		return 0;
	memcpy(&word, p, sizeof(word));
	if ((word & 0xfc000000) != 0x94000000) /* BL: a B with the link bit */
		return 0;
	if (!arm64_branch(va, word & ~0x80000000u, &conditional, &target))
		return 0;
	return (search->callee.va && target == search->callee.va) ||
			       arm64_stub_leads_to(search, target)
		       ? 4
		       : 0;
}

/* ---- all of the code ---- */

/* False: too many sites. */
static bool add_site(struct search *search, uint64_t va, size_t size)
{
	const struct function *function = functions_find(search->functions, va);

	/* on x86-64 arbitrary bytes may look like a call: verify the instruction boundary */
	if (!function)
		return true;
	if (++search->n_checked > MAX_CHECKED)
		return false;
	if (!disassemble_meets(search->elf, function->start, va))
		return true;
	if (search->n == search->max)
		return false;
	search->sites[search->n++] =
		(struct call_site){ .va = va, .next = va + size, .function = *function };
	return true;
}

static bool search_segment(struct search *search, const struct elf_segment *s)
{
	bool arm64 = search->elf->machine == EM_AARCH64;

	for (uint64_t i = 0; i < s->file_size; i += arm64 ? 4 : 1) {
		size_t left = (size_t)(s->file_size - i);
		size_t size = arm64 ? arm64_call_size(search, s->va + i, s->data + i, left)
				    : x86_call_size(search, s->va + i, s->data + i, left);

		if (size && !add_site(search, s->va + i, size))
			return false;
	}
	return true;
}

int call_sites_find(const struct elf_file *elf, const struct functions *functions, const char *name,
		    struct call_site *ret, size_t max, struct why *why)
{
	struct search search = { .elf = elf, .functions = functions, .sites = ret, .max = max };

	find_callee(elf, name, &search.callee);
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];

		if ((s->flags & PF_X) && s->data && !search_segment(&search, s))
			return why_fail(why, ENOTSUP, "the file calls %s() in more than %zu places",
					name, max);
	}
	if (!search.n)
		return why_fail(why, ENOTSUP, "no code in the file calls %s()", name);
	return (int)search.n;
}
