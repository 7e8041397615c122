/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a file or of the kernel, sorted by address, with names. */
#ifndef UNDERSPAN_ELF_SYMBOL_TABLE_H
#define UNDERSPAN_ELF_SYMBOL_TABLE_H

#include "base/util.h"

struct symbol {
	uint64_t start;
	uint32_t size; /* 0: up to the next symbol */
	uint32_t name; /* offset in `names` */
};

struct symbol_table {
	struct symbol *items;
	size_t n, allocated;
	char *names;
	size_t names_size, names_allocated;
	void *block; /* holds both arrays; NULL: separate allocations */
};

/* In any order; -ENOMEM, or -E2BIG over the limit. */
int symbol_table_add(struct symbol_table *table, uint64_t start, uint64_t size, const char *name,
		     size_t length);
/* To be called after the last addition and before the first look-up. */
void symbol_table_sort(struct symbol_table *table);
const char *symbol_table_find(const struct symbol_table *table, uint64_t address);
size_t symbol_table_bytes(const struct symbol_table *table);
void symbol_table_free(struct symbol_table *table);

/*
 * Packs both arrays into a single block for another process and frees them. NULL: empty, or out of
 * memory. Unpacking takes ownership of the block.
 */
void *symbol_table_pack(struct symbol_table *table, size_t *ret_size);
void symbol_table_unpack(const struct symbol_table *packed, void *block, size_t size,
			 struct symbol_table *ret);

/*
 * Reads the functions of the ELF file `fd` or of its debug files; `host_pid`: see elf_file.h. No
 * functions is not an error.
 */
int symbol_table_read_elf(struct symbol_table *table, int fd, uint32_t host_pid);
int symbol_table_read_kernel(struct symbol_table *table);

#endif
