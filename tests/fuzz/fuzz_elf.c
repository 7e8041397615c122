// SPDX-License-Identifier: Apache-2.0
/* Readers of ELF files: all searches in an untrusted executable. */
#include "fuzz.h"

#include "elf/elf_file.h"
#include "cpython/image_read.h"
#include "cpython/offsets.h"
#include "cpython/gc.h"
#include "elf/symbol_table.h"
#include "python_offsets.h"

static void read_python(int fd)
{
	static const char *const hints[] = { NULL, "/usr/bin/python3.9", "libpython3.10.so.1.0" };
	struct python_offsets offsets;
	struct python_image image;
	struct elf_file elf;
	struct why why;

	python_image_needs_libpython(fd);
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		if (python_image_read(fd, hints[i], &image, &why))
			continue;
		MUST(image.minor >= 8 && image.minor <= 15);
		MUST(image.n_gc_entry <= PYTHON_MAX_GC_ENTRIES);
		MUST(image.n_gc_exit <= PYTHON_MAX_GC_EXITS);
		MUST(!image.n_gc_entry == (image.gc_method == GC_METHOD_NONE));
		python_offsets_for(&image, fd, &offsets, &why);
		MUST(!elf_file_open(fd, &elf, &why));
		python_gc_find(&elf, 1u << GC_METHOD_SYMBOL, &image);
		python_gc_find(&elf, 1u << GC_METHOD_SCAN, &image);
		elf_file_close(&elf);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = fuzz_file(data, size);
	struct symbol_table table = { 0 };

	read_python(fd);
	if (!symbol_table_read_elf(&table, fd, 0)) {
		for (uint64_t va = 0; va < 1 << 20; va += 997)
			symbol_table_find(&table, va);
	}
	symbol_table_free(&table);
	return 0;
}
