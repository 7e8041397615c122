// SPDX-License-Identifier: Apache-2.0
/* Function ranges from the unwind tables. See eh_frame.h. */
#include "probe/eh_frame.h"

#include <string.h>

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

/* Bounds that real files stay far below; they keep a hostile one from costing quadratic time. */
enum { EH_FRAME_MAX_ENTRIES = 1 << 20, CIE_MAX_AUGMENTATION = 8, FDE_MAX_FIRST_OPS = 32 };

/* A place in loaded bytes that cannot be read past: an overrun gives zeros and sets `bad`. */
struct cursor {
	const uint8_t *p, *end;
	uint64_t va; /* of p */
	bool bad;
};

static uint64_t take(struct cursor *c, size_t n)
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
		uint64_t byte = take(c, 1);

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
	v = take(c, size);
	if ((encoding & PE_FORMAT_MASK) == PE_SDATA4)
		v = (uint64_t)(int64_t)(int32_t)v;
	if ((encoding & PE_BASE_MASK) == PE_PCREL)
		v += at;
	return v;
}

/* A cursor over the body of the CIE or FDE at `va`: what follows its length word. */
static bool open_entry(const struct elf_file *elf, uint64_t va, struct cursor *ret)
{
	const uint8_t *head = elf_at(elf, va, 4), *body;
	uint32_t length;

	if (!head)
		return false;
	memcpy(&length, head, sizeof(length));
	/* 0 ends the table, ~0 announces a 64-bit length that no linker writes */
	if (length < 8 || length == UINT32_MAX)
		return false;
	body = elf_at(elf, va + 4, length);
	if (!body)
		return false;
	*ret = (struct cursor){ .p = body, .end = body + length, .va = va + 4 };
	return true;
}

/* What an FDE needs to know from its CIE: how its addresses are written. */
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

	if (!open_entry(elf, va, &c) || take(&c, 4) != 0)
		return false;
	version = take(&c, 1);
	augmentation = (const char *)c.p;
	if (!memchr(c.p, '\0', (size_t)(c.end - c.p)) ||
	    strlen(augmentation) > CIE_MAX_AUGMENTATION)
		return false;
	c.va += strlen(augmentation) + 1;
	c.p += strlen(augmentation) + 1;
	take_uleb(&c); /* code alignment */
	take_uleb(&c); /* data alignment: signed, but of the same length */
	if (version == 1)
		take(&c, 1); /* return address register */
	else
		take_uleb(&c);
	if (augmentation[0] == 'z') {
		cie.has_augmentation = true;
		take_uleb(&c);
		for (const char *a = augmentation + 1; *a && !c.bad; a++) {
			if (*a == 'R')
				cie.encoding = (uint8_t)take(&c, 1);
			else if (*a == 'L')
				take(&c, 1);
			else if (*a == 'P')
				take_encoded(&c, (uint8_t)take(&c, 1));
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
 * Do the unwind instructions move the frame before the first instruction has run? Then this is no
 * function but a part of one that is entered by a jump, with the stack frame already there.
 */
static bool starts_inside_a_frame(struct cursor c)
{
	for (int i = 0; i < FDE_MAX_FIRST_OPS && c.p < c.end && !c.bad; i++) {
		uint8_t op = (uint8_t)take(&c, 1);

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
			else if ((op & 0xc0) != 0xc0) /* restore; all else ends the search */
				return false;
		}
	}
	return false;
}

/* `cie` caches the last one seen: a file has a handful, its FDEs come in runs. */
static bool read_fde(const struct elf_file *elf, uint64_t va, struct cie *cie, struct function *ret)
{
	uint64_t cie_va, start, size;
	struct cursor c;

	if (!open_entry(elf, va, &c))
		return false;
	cie_va = c.va;
	cie_va -= take(&c, 4);
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

/* The table of .eh_frame_hdr as every linker writes it: sorted pairs (function, FDE). */
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
			return why_fail(why, -err, "out of memory");
	}
	return 0;
}
