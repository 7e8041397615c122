/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function ranges of a program: from the symbol table or, in stripped files, from the unwind table.
 * Parts moved out of a function by the compiler are separate entries.
 */
#ifndef UNDERSPAN_ELF_FUNCTIONS_H
#define UNDERSPAN_ELF_FUNCTIONS_H

#include "elf/elf_file.h"
#include "elf/function_list.h"

int functions_from_symbols(const struct elf_symbols *symbols, struct functions *ret,
			   struct why *why);
/* Needs elf_load_readonly(). */
int functions_from_unwind_table(const struct elf_file *elf, struct functions *ret, struct why *why);

#endif
