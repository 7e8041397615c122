// SPDX-License-Identifier: Apache-2.0
/* Reads a Python executable or library. See image_read.h. */
#include "cpython/image_read.h"

#include <string.h>

#include "elf/elf_file.h"
#include "host/proc.h"
#include "cpython/gc.h"
#include "cpython/version.h"

/*
 * Finds &_PyRuntime, exported since 3.7, and the symbol table with the name: .dynsym, or .symtab of
 * a static program. Without symbols, section .PyRuntime (3.10 and later) contains nothing besides;
 * `ret_symbols` is empty then.
 */
static bool find_runtime(const struct elf_file *elf, struct elf_symbols *ret_symbols,
			 uint64_t *ret_va)
{
	static const uint32_t tables[] = { SHT_DYNSYM, SHT_SYMTAB };
	const Elf64_Shdr *section;

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		if (elf_symbols_load(elf, tables[i], ret_symbols))
			continue;
		if (elf_symbol_find(ret_symbols, "_PyRuntime", ret_va))
			return true;
		elf_symbols_free(ret_symbols);
	}
	section = elf_section(elf, ".PyRuntime");
	if (!section)
		return false;
	*ret_va = section->sh_addr;
	return true;
}

static int read_image(struct elf_file *elf, const char *path_hint, struct python_image *image,
		      struct why *why)
{
	struct elf_symbols symbols = {};
	int err = -ENOENT;

	/* a program using libpython may still contain a copy of the symbols */
	if (!elf_needs(elf, "libpython") && find_runtime(elf, &symbols, &image->runtime_va)) {
		elf_va_to_offset(elf, image->runtime_va, &image->runtime_file_offset);
		image->load_va = elf->loads[0].va - elf->loads[0].file_offset;
		image->machine = elf->machine;
		image->build_id_len = (uint8_t)elf_build_id(elf, image->build_id,
							    sizeof(image->build_id));
		err = python_version_find(elf, &symbols, path_hint, image, why);
	}
	elf_symbols_free(&symbols);
	if (!err)
		python_gc_find(elf, GC_TRY_ALL, image);
	return err;
}

int python_image_read_of(uint32_t host_pid, int fd, const char *path_hint, struct python_image *ret,
			 struct why *why)
{
	struct python_image image = {};
	struct elf_file elf;
	struct why reason;
	int err;

	err = elf_file_open(fd, &elf, &reason);
	if (err == -ENOTSUP && !(path_hint && proc_names_python(path_hint)))
		return -ENOENT; /* a program for a different machine, without a message */
	if (err)
		return why_fail(why, -err, "%s: %s", path_hint ? path_hint : "a file", reason.text);
	elf.host_pid = host_pid;
	err = read_image(&elf, path_hint, &image, why);
	elf_file_close(&elf);
	if (!err)
		*ret = image;
	return err;
}

int python_image_read(int fd, const char *path_hint, struct python_image *ret, struct why *why)
{
	return python_image_read_of(0, fd, path_hint, ret, why);
}

bool python_image_needs_libpython(int fd)
{
	struct elf_file elf;
	bool needs;

	if (elf_file_open(fd, &elf, NULL))
		return false;
	needs = elf_needs(&elf, "libpython");
	elf_file_close(&elf);
	return needs;
}
