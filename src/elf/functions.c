// SPDX-License-Identifier: Apache-2.0
/* Where the functions of a program are. See functions.h. */
#include "elf/functions.h"

#include "base/budget.h"
#include "elf/eh_frame.h"

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
		f.is_part = elf_name_has(elf_symbol_name(symbols, sym), ".cold");
		if (functions_add(&functions, f)) {
			functions_free(&functions);
			return why_fail(why, ENOMEM, "too many functions: " BUDGET_SPENT,
					budget_of_file() >> 20);
		}
	}
	functions_sort(&functions);
	*ret = functions;
	return 0;
}

/*
 * Removes the PLT, a single entry for all stubs: a call of another library would look like a jump
 * into the middle of a function.
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
	functions_sort(&functions);
	drop_linkage_table(elf, &functions);
	*ret = functions;
	return 0;
}
