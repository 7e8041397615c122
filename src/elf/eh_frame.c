// SPDX-License-Identifier: Apache-2.0
/* Function ranges from the unwind tables. See eh_frame.h. */
#include "elf/eh_frame.h"

#include <string.h>

#include "base/budget.h"

/* Pointer encodings (Linux Standard Base, "DWARF Extensions"). */
enum {
	PE_ABSPTR = 0x00,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_PCREL = 0x10,
	PE_DATAREL = 0x30,
	PE_FORMAT_MASK = 0x0f,
	PE_BASE_MASK = 0x70,
};

/* Limits far above real files; they prevent quadratic time for hostile files. */
enum { EH_FRAME_MAX_ENTRIES = 1 << 20, CIE_MAX_AUGMENTATION = 8, FDE_MAX_FIRST_OPS = 32 };

/* A bounded read position in loaded bytes: an overrun reads zeros and sets `bad`. */
struct cursor {
	const uint8_t *p, *end;
	uint64_t va; /* of p */
	bool bad;
};

static uint64_t take_bytes(struct cursor *c, size_t n)
{
	uint64_t v = 0;

	if ((size_t)(c->end - c->p) < n) {
		c->bad = true;
		return 0;
	}
	memcpy(&v, c->p, n);
	c->p += n;
	c->va += n;
	return v;
}

static uint64_t take_uleb(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint64_t byte = take_bytes(c, 1);

		v |= (byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

static size_t encoded_size(uint8_t encoding)
{
	switch (encoding & PE_FORMAT_MASK) {
	case PE_UDATA4:
	case PE_SDATA4:
		return 4;
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return 8;
	default:
		return 0;
	}
}

static uint64_t take_encoded(struct cursor *c, uint8_t encoding)
{
	size_t size = encoded_size(encoding);
	uint64_t at = c->va, v;

	if (!size) {
		c->bad = true;
		return 0;
	}
	v = take_bytes(c, size);
	if ((encoding & PE_FORMAT_MASK) == PE_SDATA4)
		v = (uint64_t)(int64_t)(int32_t)v;
	if ((encoding & PE_BASE_MASK) == PE_PCREL)
		v += at;
	return v;
}

/* A cursor over the body of the CIE or FDE at `va`, after the length. */
static bool open_entry(const struct elf_file *elf, uint64_t va, struct cursor *ret)
{
	const uint8_t *head = elf_at(elf, va, 4), *body;
	uint32_t length;

	if (!head)
		return false;
	memcpy(&length, head, sizeof(length));
	/* 0: end of the table; ~0: 64-bit length, which linkers do not write */
	if (length < 8 || length == UINT32_MAX)
		return false;
	body = elf_at(elf, va + 4, length);
	if (!body)
		return false;
	*ret = (struct cursor){ .p = body, .end = body + length, .va = va + 4 };
	return true;
}

/* The part of a CIE that FDEs need: the encoding of addresses. */
struct cie {
	uint64_t va;
	uint8_t encoding;
	bool has_augmentation;
};

static bool read_cie(const struct elf_file *elf, uint64_t va, struct cie *ret)
{
	struct cie cie = { .va = va, .encoding = PE_ABSPTR };
	const char *augmentation;
	struct cursor c;
	uint64_t version;
	size_t left;

	if (!open_entry(elf, va, &c) || take_bytes(&c, 4) != 0)
		return false;
	version = take_bytes(&c, 1);
	augmentation = (const char *)c.p;
	left = (size_t)(c.end - c.p);
	/* bounded: a million FDEs may each have a CIE with a long string */
	if (!memchr(c.p, '\0', left <= CIE_MAX_AUGMENTATION ? left : CIE_MAX_AUGMENTATION + 1))
		return false;
	c.va += strlen(augmentation) + 1;
	c.p += strlen(augmentation) + 1;
	take_uleb(&c); /* code alignment */
	take_uleb(&c); /* data alignment: signed, same length */
	if (version == 1)
		take_bytes(&c, 1); /* return address register */
	else
		take_uleb(&c);
	if (augmentation[0] == 'z') {
		cie.has_augmentation = true;
		take_uleb(&c);
		for (const char *a = augmentation + 1; *a && !c.bad; a++) {
			if (*a == 'R')
				cie.encoding = (uint8_t)take_bytes(&c, 1);
			else if (*a == 'L')
				take_bytes(&c, 1);
			else if (*a == 'P')
				take_encoded(&c, (uint8_t)take_bytes(&c, 1));
			else if (*a != 'S' && *a != 'B')
				return false;
		}
	} else if (augmentation[0]) {
		return false;
	}
	if (c.bad)
		return false;
	*ret = cie;
	return true;
}

/*
 * Whether the unwind instructions change the frame before the first instruction: then the range is
 * a part of a function, entered by a jump with an existing stack frame.
 */
static bool starts_inside_a_frame(struct cursor c)
{
	for (int i = 0; i < FDE_MAX_FIRST_OPS && c.p < c.end && !c.bad; i++) {
		uint8_t op = (uint8_t)take_bytes(&c, 1);

		switch (op) {
		case 0x00: /* nop */
		case 0x0a: /* remember_state */
		case 0x0b: /* restore_state */
		case 0x2d: /* negate_ra_state (arm64) */
			break;
		case 0x06: /* restore_extended */
		case 0x07: /* undefined */
		case 0x08: /* same_value */
		case 0x2e: /* GNU_args_size */
			take_uleb(&c);
			break;
		case 0x05: /* offset_extended */
		case 0x09: /* register */
			take_uleb(&c);
			take_uleb(&c);
			break;
		case 0x0c: /* def_cfa */
		case 0x0d: /* def_cfa_register */
		case 0x0e: /* def_cfa_offset */
		case 0x0f: /* def_cfa_expression */
			return true;
		default:
			if ((op & 0xc0) == 0x80) /* offset */
				take_uleb(&c);
			else if ((op & 0xc0) != 0xc0) /* restore; other opcodes end the search */
				return false;
		}
	}
	return false;
}

/* `cie` caches the last CIE: a file has few, and consecutive FDEs share them. */
static bool read_fde(const struct elf_file *elf, uint64_t va, struct cie *cie, struct function *ret)
{
	uint64_t cie_va, start, size;
	struct cursor c;

	if (!open_entry(elf, va, &c))
		return false;
	cie_va = c.va;
	cie_va -= take_bytes(&c, 4);
	if (cie->va != cie_va && !read_cie(elf, cie_va, cie))
		return false;
	start = take_encoded(&c, cie->encoding);
	size = take_encoded(&c, cie->encoding & PE_FORMAT_MASK);
	if (cie->has_augmentation) {
		uint64_t skip = take_uleb(&c);

		if (skip > (uint64_t)(c.end - c.p))
			return false;
		c.p += skip;
		c.va += skip;
	}
	if (c.bad || !size || start + size < start)
		return false;
	*ret = (struct function){ .start = start,
				  .end = start + size,
				  .is_part = starts_inside_a_frame(c) };
	return true;
}

/* Reads the binary search table of .eh_frame_hdr: sorted pairs (function, FDE). */
int eh_frame_functions(const struct elf_file *elf, struct functions *ret, struct why *why)
{
	struct cie cie = { .va = UINT64_MAX };
	const uint8_t *head, *table;
	uint64_t hdr_va = 0;
	uint32_t n;

	for (size_t i = 0; i < elf->n_phdrs; i++) {
		if (elf->phdrs[i].p_type == PT_GNU_EH_FRAME)
			hdr_va = elf->phdrs[i].p_vaddr;
	}
	if (!hdr_va)
		return why_fail(why, ENOENT, "no symbols and no unwind table (.eh_frame_hdr)");
	head = elf_at(elf, hdr_va, 12);
	if (!head || head[0] != 1 || head[1] != (PE_PCREL | PE_SDATA4) || head[2] != PE_UDATA4 ||
	    head[3] != (PE_DATAREL | PE_SDATA4))
		return why_fail(why, EINVAL, "the unwind table (.eh_frame_hdr) is of unknown form");
	memcpy(&n, head + 8, sizeof(n));
	table = n <= EH_FRAME_MAX_ENTRIES ? elf_at(elf, hdr_va + 12, n * 8ULL) : NULL;
	if (!table)
		return why_fail(why, EINVAL, "an unwind table of %u entries is not plausible", n);

	for (uint32_t i = 0; i < n; i++) {
		struct function f;
		int32_t fde;
		int err;

		memcpy(&fde, table + i * 8ULL + 4, sizeof(fde));
		if (!read_fde(elf, hdr_va + (uint64_t)(int64_t)fde, &cie, &f))
			continue;
		err = functions_add(ret, f);
		if (err)
			return why_fail(why, -err, "too many functions: " BUDGET_SPENT,
					budget_of_file() >> 20);
	}
	return 0;
}
