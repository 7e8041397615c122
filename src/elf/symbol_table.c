// SPDX-License-Identifier: Apache-2.0
/* Functions by address. See symbol_table.h. */
#include "elf/symbol_table.h"

#include <string.h>

#include "base/budget.h"
#include "elf/debug_symbols.h"
#include "elf/elf_file.h"

enum { MAX_NAME_BYTES = 255 };

static int grow(void **items, size_t *allocated, size_t wanted, size_t size)
{
	size_t n = *allocated ? *allocated : 1024;
	void *grown;

	if (wanted <= *allocated)
		return 0;
	while (n < wanted)
		n += n / 4 + 1;
	grown = reallocarray(*items, n, size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*allocated = n;
	return 0;
}

int symbol_table_add(struct symbol_table *table, uint64_t start, uint64_t size, const char *name,
		     size_t length)
{
	int err;

	if (length > MAX_NAME_BYTES)
		length = MAX_NAME_BYTES;

	/* the same size for the packed copy, the rest for decompression */
	if ((table->n + 1) * sizeof(*table->items) + table->names_size + length + 1 >
	    budget_of_file() / 4)
		return -E2BIG;
	err = grow((void **)&table->items, &table->allocated, table->n + 1, sizeof(*table->items));
	if (!err)
		err = grow((void **)&table->names, &table->names_allocated,
			   table->names_size + length + 1, 1);
	if (err)
		return err;
	table->items[table->n++] = (struct symbol){
		.start = start,
		.size = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size,
		.name = (uint32_t)table->names_size,
	};
	memcpy(table->names + table->names_size, name, length);
	table->names[table->names_size + length] = 0;
	table->names_size += length + 1;
	return 0;
}

static int compare(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	/* of two names the first found */
	return a->name < b->name ? -1 : 1;
}

void symbol_table_sort(struct symbol_table *table)
{
	size_t kept = 0;
	void *fitted;

	if (!table->n)
		return;
	qsort(table->items, table->n, sizeof(*table->items), compare);
	for (size_t i = 1; i < table->n; i++) {
		if (table->items[i].start != table->items[kept].start)
			table->items[++kept] = table->items[i];
	}
	table->n = kept + 1;
	fitted = reallocarray(table->items, table->n, sizeof(*table->items));
	if (fitted) {
		table->items = fitted;
		table->allocated = table->n;
	}
	fitted = realloc(table->names, table->names_size);
	if (fitted) {
		table->names = fitted;
		table->names_allocated = table->names_size;
	}
}

const char *symbol_table_find(const struct symbol_table *table, uint64_t address)
{
	size_t low = 0, high = table->n;

	while (low < high) { /* first entry after the address */
		size_t middle = low + (high - low) / 2;

		if (table->items[middle].start > address)
			high = middle;
		else
			low = middle + 1;
	}
	if (!low || (table->items[low - 1].size &&
		     address - table->items[low - 1].start >= table->items[low - 1].size))
		return NULL;
	return table->names + table->items[low - 1].name;
}

size_t symbol_table_bytes(const struct symbol_table *table)
{
	return table->allocated * sizeof(*table->items) + table->names_allocated;
}

void symbol_table_free(struct symbol_table *table)
{
	if (table->block) {
		free(table->block);
	} else {
		free(table->items);
		free(table->names);
	}
	*table = (struct symbol_table){ 0 };
}

void *symbol_table_pack(struct symbol_table *table, size_t *ret_size)
{
	size_t items = table->n * sizeof(*table->items);
	char *block = items ? malloc(items + table->names_size) : NULL;

	if (block) {
		memcpy(block, table->items, items);
		memcpy(block + items, table->names, table->names_size);
	}
	*ret_size = block ? items + table->names_size : 0;
	free(table->items);
	free(table->names);
	table->items = NULL;
	table->names = NULL;
	return block;
}

void symbol_table_unpack(const struct symbol_table *packed, void *block, size_t size,
			 struct symbol_table *ret)
{
	size_t items = packed->n * sizeof(*packed->items);

	*ret = (struct symbol_table){ 0 };
	if (!block || size != items + packed->names_size) {
		free(block);
		return;
	}
	*ret = (struct symbol_table){
		.items = block,
		.n = packed->n,
		.allocated = packed->n,
		.names = (char *)block + items,
		.names_size = packed->names_size,
		.names_allocated = packed->names_size,
		.block = block,
	};
}

/* ---- ELF ---- */

static int add_symbols(struct symbol_table *table, const struct elf_symbols *symbols)
{
	int err = 0;

	for (size_t i = 0; !err && i < symbols->n; i++) {
		const Elf64_Sym *sym = &symbols->items[i];
		uint32_t kind = ELF64_ST_TYPE(sym->st_info);
		struct elf_name name;

		/* without a size: a label of assembly code, still useful */
		if ((kind != STT_FUNC && kind != STT_GNU_IFUNC) || sym->st_shndx == SHN_UNDEF ||
		    !sym->st_value)
			continue;
		name = elf_symbol_name(symbols, sym);
		err = symbol_table_add(table, sym->st_value, sym->st_size, name.text, name.length);
	}
	return err;
}

static int add_elf(struct symbol_table *table, const struct elf_file *elf)
{
	struct elf_symbols symbols;
	size_t exported;
	int err = 0;

	/* exported names first: read(), not __GI___libc_read() */
	if (!elf_symbols_load(elf, SHT_DYNSYM, &symbols)) {
		err = add_symbols(table, &symbols);
		elf_symbols_free(&symbols);
	}
	exported = table->n;
	for (int i = 0; !err && i < N_DEBUG_SOURCES && table->n == exported; i++) {
		if (debug_symbols_load(elf, (enum debug_source)i, &symbols))
			continue;
		err = add_symbols(table, &symbols);
		elf_symbols_free(&symbols);
	}
	return err;
}

/* In an incomplete table a symbol without size would seem to extend to the next symbol. */
static void drop_open_ended(struct symbol_table *table)
{
	size_t kept = 0;

	for (size_t i = 0; i < table->n; i++) {
		if (table->items[i].size)
			table->items[kept++] = table->items[i];
	}
	table->n = kept;
}

int symbol_table_read_elf(struct symbol_table *table, int fd, uint32_t host_pid)
{
	struct elf_file elf;
	int err = elf_file_open(fd, &elf, NULL);

	if (err)
		return err;
	elf.host_pid = host_pid;
	if (budget_take(budget_of_file() / 2)) {
		err = add_elf(table, &elf);
		if (err)
			drop_open_ended(table);
		symbol_table_sort(table);
		budget_give(budget_of_file() / 2);
	} else {
		err = -ENOMEM;
	}
	elf_file_close(&elf);
	return err;
}

/* ---- the kernel ---- */

int symbol_table_read_kernel(struct symbol_table *table)
{
	AUTO_FCLOSE FILE *f = fopen("/proc/kallsyms", "re");
	char line[512];
	int err = f ? 0 : -errno;

	while (!err && fgets(line, sizeof(line), f)) {
		unsigned long long address;
		char kind, name[MAX_NAME_BYTES + 1];

		/*
		 * Addresses are 0 without permission. Half of the symbols are padding before
		 * functions (__pfx_), never executed.
		 */
		if (sscanf(line, "%llx %c %255s", &address, &kind, name) == 3 && address &&
		    (kind == 't' || kind == 'T' || kind == 'w' || kind == 'W') &&
		    strncmp(name, "__pfx_", 6) != 0)
			err = symbol_table_add(table, address, 0, name, strlen(name));
	}
	symbol_table_sort(table);
	return err;
}
