// SPDX-License-Identifier: Apache-2.0
/*
 * A file that passes for CPython, with many functions whose names share a very long string: the
 * input, repeated. The input also sets the number of names and their offsets.
 */
#include "fuzz.h"

#include <elf.h>

#include "base/budget.h"
#include "base/clock.h"
#include "cpython/image_read.h"
#include "elf/symbol_table.h"
#include "base/util.h"

enum {
	NAMES_BYTES = 2 << 20,
	MAX_SYMBOLS = 20000,
	MAX_SECONDS = 5,
	BASE = 0x400000,
	RUNTIME_AT = 0x800,
	SYMBOLS_AT = 0x1000,
	NAMES_AT = SYMBOLS_AT + MAX_SYMBOLS * sizeof(Elf64_Sym),
	FILE_BYTES = NAMES_AT + NAMES_BYTES,
};

static uint8_t file[FILE_BYTES];

static void make_headers(uint8_t minor, size_t n_symbols)
{
	static const char names[] = "\0.PyRuntime\0.shstrtab";
	const Elf64_Ehdr eh = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = 1,
		.e_phoff = sizeof(eh),
		.e_shoff = 0x200,
		.e_ehsize = sizeof(eh),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 5,
		.e_shstrndx = 2,
	};
	const Elf64_Phdr load = { .p_type = PT_LOAD,
				  .p_flags = PF_R | PF_X,
				  .p_vaddr = BASE,
				  .p_filesz = SYMBOLS_AT,
				  .p_memsz = SYMBOLS_AT };
	const Elf64_Shdr sections[] = {
		{ 0 },
		{ .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_addr = BASE + RUNTIME_AT },
		{ .sh_type = SHT_STRTAB, .sh_offset = 0x400, .sh_size = sizeof(names) },
		{ .sh_type = SHT_SYMTAB,
		  .sh_offset = SYMBOLS_AT,
		  .sh_size = n_symbols * sizeof(Elf64_Sym),
		  .sh_link = 4 },
		{ .sh_type = SHT_STRTAB, .sh_offset = NAMES_AT, .sh_size = NAMES_BYTES },
	};
	const uint64_t runtime[] = { 0x7970677562656478, 3 << 24 | (uint64_t)minor << 16 | 0x05f0,
				     0 };

	memcpy(file, &eh, sizeof(eh));
	memcpy(file + sizeof(eh), &load, sizeof(load));
	memcpy(file + 0x200, sections, sizeof(sections));
	memcpy(file + 0x400, names, sizeof(names));
	memcpy(file + RUNTIME_AT, runtime, sizeof(runtime));
}

/* Each name starts `step` bytes after the previous. */
static void make_symbols(size_t n, uint8_t step, const uint8_t *text, size_t size)
{
	uint8_t *names = file + NAMES_AT;

	for (size_t i = 0; i < NAMES_BYTES; i++)
		names[i] = text[i % size] ? text[i % size] : 'a';
	for (size_t i = 0; i < n; i++) {
		const Elf64_Sym symbol = { .st_name = (uint32_t)(i * step),
					   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					   .st_shndx = 1,
					   .st_value = BASE + 0x500 + i % 64,
					   .st_size = 1 + i % 99 };

		memcpy(file + SYMBOLS_AT + i * sizeof(symbol), &symbol, sizeof(symbol));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t begin_ns = clock_process_cpu_ns();
	struct symbol_table table = { 0 };
	struct python_image image;
	size_t n_symbols;
	struct why why;
	int fd;

	if (size < 5)
		return 0;
	n_symbols = (size_t)(data[0] | data[1] << 8) % MAX_SYMBOLS;
	make_headers(8 + data[2] % 8, n_symbols);
	make_symbols(n_symbols, data[3], data + 4, size - 4);
	fd = fuzz_file(file, sizeof(file));
	python_image_read(fd, "/usr/bin/python3.13", &image, &why);
	symbol_table_read_elf(&table, fd, 0);
	MUST(symbol_table_bytes(&table) <= budget_of_file());
	for (uint64_t va = BASE; va < BASE + 0x1000; va += 97)
		symbol_table_find(&table, va);
	symbol_table_free(&table);
	MUST(!budget_used());
	MUST(clock_process_cpu_ns() - begin_ns < MAX_SECONDS * NSEC_PER_SEC);
	return 0;
}
