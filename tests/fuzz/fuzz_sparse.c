// SPDX-License-Identifier: Apache-2.0
/*
 * Sparse files: four bytes of the input set the size in KiB, the rest is the start of the file,
 * followed by a hole. Segments and tables may be anywhere and overlap.
 */
#include "fuzz.h"

#include "base/budget.h"
#include "base/clock.h"
#include "elf/elf_file.h"
#include "cpython/image_read.h"
#include "elf/symbol_table.h"
#include "base/util.h"

enum { MAX_KIB = 8 << 20, MAX_SECONDS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t begin_ns = clock_process_cpu_ns();
	struct symbol_table table = { 0 };
	struct python_image image;
	struct elf_file elf;
	struct why why;
	uint32_t kib;
	int fd;

	if (size < sizeof(kib))
		return 0;
	memcpy(&kib, data, sizeof(kib));
	fd = fuzz_file(data + sizeof(kib), size - sizeof(kib));
	if ((uint64_t)kib % MAX_KIB << 10 > size)
		MUST(!ftruncate(fd, (off_t)((uint64_t)kib % MAX_KIB << 10)));
	python_image_read(fd, "/usr/bin/python3.13", &image, &why);
	if (!elf_file_open(fd, &elf, &why)) {
		uint64_t mapped = 0;

		elf_load_readonly(&elf, &why);
		for (size_t i = 0; i < elf.n_loads; i++)
			mapped += elf.loads[i].data ? elf.loads[i].file_size : 0;
		MUST(mapped <= ELF_MAX_SEARCHED_BYTES);
		elf_file_close(&elf);
	}
	symbol_table_read_elf(&table, fd, 0);
	MUST(symbol_table_bytes(&table) <= budget_of_file());
	symbol_table_free(&table);
	MUST(!budget_used());
	MUST(clock_process_cpu_ns() - begin_ns < MAX_SECONDS * NSEC_PER_SEC);
	return 0;
}
