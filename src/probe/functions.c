// SPDX-License-Identifier: Apache-2.0
/* The table of a program's functions. See functions.h. */
#include "probe/functions.h"

#include <stdlib.h>
#include <string.h>

#include "probe/eh_frame.h"

int functions_add(struct functions *functions, struct function f)
{
	if (functions->n == functions->allocated) {
		size_t n = functions->allocated ? functions->allocated * 2 : 1024;
		void *items = reallocarray(functions->items, n, sizeof(*functions->items));

		if (!items)
			return -ENOMEM;
		functions->items = items;
		functions->allocated = n;
	}
	functions->items[functions->n++] = f;
	return 0;
}

void functions_free(struct functions *functions)
{
	free(functions->items);
	*functions = (struct functions){};
}

/* By start, and of two with the same start the longer one first. */
static int compare(const void *left, const void *right)
{
	const struct function *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	return 0;
}

/* Sorts, and keeps one of several names for the same function. */
static void settle(struct functions *functions)
{
	size_t kept = 0;

	if (!functions->n)
		return;
	qsort(functions->items, functions->n, sizeof(*functions->items), compare);
	for (size_t i = 1; i < functions->n; i++) {
		if (functions->items[i].start != functions->items[kept].start)
			functions->items[++kept] = functions->items[i];
	}
	functions->n = kept + 1;
}

int functions_from_symbols(const struct elf_symbols *symbols, struct functions *ret,
			   struct why *why)
{
	struct functions functions = {};

	for (size_t i = 0; i < symbols->n; i++) {
		const Elf64_Sym *sym = &symbols->items[i];
		struct function f = { .start = sym->st_value, .end = sym->st_value + sym->st_size };

		if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC || sym->st_shndx == SHN_UNDEF ||
		    f.end <= f.start)
			continue;
		f.is_part = strstr(elf_symbol_name(symbols, sym), ".cold") != NULL;
		if (functions_add(&functions, f)) {
			functions_free(&functions);
			return why_fail(why, ENOMEM, "out of memory");
		}
	}
	settle(&functions);
	*ret = functions;
	return 0;
}

/*
 * The procedure linkage table has one entry for all of its stubs: a call of another library would
 * look like a jump into the middle of a function.
 */
static void drop_linkage_table(const struct elf_file *elf, struct functions *functions)
{
	static const char *const names[] = { ".plt", ".plt.sec", ".plt.got", ".iplt" };
	const Elf64_Shdr *plt[ARRAY_SIZE(names)];
	size_t kept = 0;

	for (size_t k = 0; k < ARRAY_SIZE(names); k++)
		plt[k] = elf_section(elf, names[k]);
	for (size_t i = 0; i < functions->n; i++) {
		const struct function f = functions->items[i];
		bool linkage = false;

		for (size_t k = 0; k < ARRAY_SIZE(names); k++)
			linkage |= plt[k] && f.start >= plt[k]->sh_addr &&
				   f.start - plt[k]->sh_addr < plt[k]->sh_size;
		if (!linkage)
			functions->items[kept++] = f;
	}
	functions->n = kept;
}

int functions_from_unwind_table(const struct elf_file *elf, struct functions *ret, struct why *why)
{
	struct functions functions = {};
	int err = eh_frame_functions(elf, &functions, why);

	if (err) {
		functions_free(&functions);
		return err;
	}
	settle(&functions);
	drop_linkage_table(elf, &functions);
	*ret = functions;
	return 0;
}

const struct function *functions_find(const struct functions *functions, uint64_t va)
{
	size_t low = 0, high = functions->n;

	while (low < high) { /* the first entry that starts behind va */
		size_t middle = low + (high - low) / 2;

		if (functions->items[middle].start > va)
			high = middle;
		else
			low = middle + 1;
	}
	if (!low || va >= functions->items[low - 1].end)
		return NULL;
	return &functions->items[low - 1];
}
