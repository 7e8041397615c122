// SPDX-License-Identifier: Apache-2.0
/* Finds the GC function by its message. See gc_scan.h. */
#include "cpython/gc_scan.h"

#include <string.h>

#include "elf/disasm.h"
#include "elf/function_body.h"

/* including the NUL: a longer message with the same prefix does not match */
static const char gc_text[] = "gc: collecting generation %d...\n";

void gc_find_texts(const struct elf_file *elf, struct gc_texts *ret)
{
	*ret = (struct gc_texts){};
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];
		const uint8_t *p = s->data, *end = s->data ? s->data + s->file_size : NULL;

		while (p && ret->n < GC_MAX_TEXTS &&
		       (p = memmem(p, (size_t)(end - p), gc_text, sizeof(gc_text)))) {
			ret->va[ret->n++] = s->va + (uint64_t)(p - s->data);
			p += sizeof(gc_text);
		}
	}
}

static bool is_text(const struct gc_texts *texts, uint64_t va)
{
	for (size_t i = 0; i < texts->n; i++) {
		if (texts->va[i] == va)
			return true;
	}
	return false;
}

/* A small set of functions. */
struct function_set {
	struct function items[GC_MAX_FUNCTIONS];
	size_t n;
	bool overflow;
};

static void set_add(struct function_set *set, const struct function *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < set->n; i++) {
		if (set->items[i].start == f->start)
			return;
	}
	if (set->n == GC_MAX_FUNCTIONS)
		set->overflow = true;
	else
		set->items[set->n++] = *f;
}

static uint32_t read_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/*
 * Callback for every possible direct jump or address reference. On x86-64 all byte positions are
 * tried, so a match may be accidental and is confirmed by disassembling the surrounding function.
 */
typedef void (*visit_fn)(void *context, uint64_t va, uint64_t target);

static void visit_x86(const struct elf_segment *s, visit_fn reference, visit_fn jump, void *context)
{
	const uint8_t *d = s->data;

	for (uint64_t i = 0; i + 6 <= s->file_size; i++) {
		uint64_t va = s->va + i;

		if (d[i] == 0x8d && (d[i + 1] & 0xc7) == 0x05) { /* lea disp32(%rip) */
			if (reference)
				reference(context, va,
					  va + 6 + (uint64_t)(int64_t)(int32_t)read_u32(d + i + 2));
		} else if ((d[i] & 0xf8) == 0xb8) { /* mov $imm32, %reg */
			if (reference)
				reference(context, va, read_u32(d + i + 1));
		} else if (d[i] == 0xc7 && (d[i + 1] & 0xf8) == 0xc0) { /* mov $imm32, %reg64 */
			if (reference)
				reference(context, va, read_u32(d + i + 2));
		} else if (d[i] == 0xe9) { /* jmp rel32 */
			if (jump)
				jump(context, va,
				     va + 5 + (uint64_t)(int64_t)(int32_t)read_u32(d + i + 1));
		} else if (d[i] == 0x0f && (d[i + 1] & 0xf0) == 0x80) { /* jcc rel32 */
			if (jump)
				jump(context, va,
				     va + 6 + (uint64_t)(int64_t)(int32_t)read_u32(d + i + 2));
		}
	}
}

static void visit_arm64(const struct elf_segment *s, visit_fn reference, visit_fn jump,
			void *context)
{
	struct arm64_pages pages = {};

	for (uint64_t i = 0; i + 4 <= s->file_size; i += 4) {
		uint32_t word = read_u32(s->data + i);
		uint64_t va = s->va + i, target;
		bool conditional;

		if (reference && arm64_address(&pages, va, word, &target))
			reference(context, va, target);
		else if (jump && arm64_branch(va, word, &conditional, &target))
			jump(context, va, target);
	}
}

static void visit_code(const struct elf_file *elf, visit_fn reference, visit_fn jump, void *context)
{
	for (size_t i = 0; i < elf->n_loads; i++) {
		const struct elf_segment *s = &elf->loads[i];

		if (!(s->flags & PF_X) || !s->data)
			continue;
		if (elf->machine == EM_AARCH64)
			visit_arm64(s, reference, jump, context);
		else
			visit_x86(s, reference, jump, context);
	}
}

struct search {
	const struct functions *functions;
	const struct gc_texts *texts;
	struct function_set found;   /* entries or parts referring to a text */
	struct function_set jumpers; /* functions that jump into `found` */
};

static void note_reference(void *context, uint64_t va, uint64_t target)
{
	struct search *search = context;

	if (is_text(search->texts, target))
		set_add(&search->found, functions_find(search->functions, va));
}

static void note_jump(void *context, uint64_t va, uint64_t target)
{
	struct search *search = context;

	for (size_t i = 0; i < search->found.n; i++) {
		const struct function *f = &search->found.items[i];

		if (target >= f->start && target < f->end && (va < f->start || va >= f->end))
			set_add(&search->jumpers, functions_find(search->functions, va));
	}
}

/*
 * Adds `candidate` to the entries if its body, with all parts, refers to a text; marks its members
 * of `found` in `covered`.
 */
static int try_entry(const struct elf_file *elf, const struct search *search,
		     const struct function *candidate, struct function_set *entries, bool *covered,
		     struct why *why)
{
	struct function_body body;
	bool refers = false;
	int err;

	err = function_body_read(elf, search->functions, candidate, &body, why);
	if (err)
		return err;
	for (size_t i = 0; i < search->texts->n; i++)
		refers |= function_body_refers_to(&body, search->texts->va[i]);
	if (refers)
		set_add(entries, candidate);
	for (size_t i = 0; refers && i < search->found.n; i++)
		covered[i] |= function_body_contains(&body, search->found.items[i].start);
	function_body_free(&body);
	return 0;
}

int gc_scan(const struct elf_file *elf, const struct functions *functions,
	    const struct gc_texts *texts, struct function ret[GC_MAX_FUNCTIONS], struct why *why)
{
	struct search search = { .functions = functions, .texts = texts };
	bool covered[GC_MAX_FUNCTIONS] = {};
	struct function_set entries = {};
	int err;

	visit_code(elf, note_reference, NULL, &search);
	if (!search.found.n || search.found.overflow)
		return why_fail(why, ENOTSUP, "no function refers to the collector's message");
	visit_code(elf, NULL, note_jump, &search);

	/*
	 * First the functions that jump to the use of the message, which may be in a moved part. If
	 * such a function cannot be followed, the part remains without an owner below.
	 */
	for (size_t i = 0; i < search.jumpers.n; i++) {
		if (!search.jumpers.items[i].is_part)
			try_entry(elf, &search, &search.jumpers.items[i], &entries, covered, NULL);
	}
	for (size_t i = 0; i < search.found.n; i++) {
		const struct function *f = &search.found.items[i];

		if (covered[i])
			continue;
		if (f->is_part)
			return why_fail(why, ENOTSUP,
					"no jump found to the moved code at %#llx, which uses the "
					"collector's message",
					(unsigned long long)f->start);
		err = try_entry(elf, &search, f, &entries, covered, why);
		if (err)
			return err;
	}
	if (!entries.n || entries.overflow)
		return why_fail(why, ENOTSUP, "no function refers to the collector's message");
	memcpy(ret, entries.items, entries.n * sizeof(*ret));
	return (int)entries.n;
}
