/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of one file, or of the kernel, sorted by address, with their names. */
#ifndef UNDERSPAN_PROBE_SYMBOL_TABLE_H
#define UNDERSPAN_PROBE_SYMBOL_TABLE_H

#include "util.h"

struct symbol {
	uint64_t start;
	uint32_t size; /* 0: up to the next one */
	uint32_t name; /* offset in `names` */
};

struct symbol_table {
	struct symbol *items;
	size_t n, allocated;
	char *names;
	size_t names_size, names_allocated;
};

/* Needs no order; -ENOMEM, or -E2BIG for more than any sound file has. */
int symbol_table_add(struct symbol_table *table, uint64_t start, uint64_t size, const char *name);
/* After the last one, before the first look-up. */
void symbol_table_sort(struct symbol_table *table);
const char *symbol_table_find(const struct symbol_table *table, uint64_t address);
size_t symbol_table_bytes(const struct symbol_table *table);
void symbol_table_free(struct symbol_table *table);

/*
 * Fills it with the functions of the ELF file behind `fd`, or of what was stripped off it; see
 * elf_file.h for `host_pid`. A file without any is no error.
 */
int symbol_table_read_elf(struct symbol_table *table, int fd, uint32_t host_pid);
int symbol_table_read_kernel(struct symbol_table *table);

#endif
