// SPDX-License-Identifier: Apache-2.0
/* What one Python executable or library offers to a tracer. See python.h. */
#include "probe/python.h"

#include <string.h>

#include "probe/elf_file.h"
#include "probe/python_gc.h"
#include "probe/python_version.h"

/*
 * &_PyRuntime, which is exported by 3.7 and later. Without any symbols the section that holds
 * nothing else tells (3.10 and later).
 */
static bool find_runtime(const struct elf_file *elf, const struct elf_symbols *dynsym,
			 uint64_t *ret_va)
{
	const Elf64_Shdr *section;
	struct elf_symbols symtab;
	bool found;

	if (elf_symbol_find(dynsym, "_PyRuntime", ret_va))
		return true;
	if (elf_symbols_load(elf, SHT_SYMTAB, &symtab) == 0) {
		found = elf_symbol_find(&symtab, "_PyRuntime", ret_va);
		elf_symbols_free(&symtab);
		if (found)
			return true;
	}
	section = elf_section(elf, ".PyRuntime");
	if (!section)
		return false;
	*ret_va = section->sh_addr;
	return true;
}

static bool names_python(const char *path_hint)
{
	const char *name = path_hint ? strrchr(path_hint, '/') : NULL;

	name = name ? name + 1 : path_hint;
	return name && strstr(name, "python");
}

static int read_image(struct elf_file *elf, const char *path_hint, struct python_image *image,
		      struct why *why)
{
	struct elf_symbols dynsym = {};
	int err = -ENOENT;

	elf_symbols_load(elf, SHT_DYNSYM, &dynsym); /* absent in a static program */
	/* a program that gets the interpreter from a library may still have a copy of its symbols
	 */
	if (!elf_needs(elf, "libpython") && find_runtime(elf, &dynsym, &image->runtime_va)) {
		elf_va_to_offset(elf, image->runtime_va, &image->runtime_file_offset);
		image->machine = elf->machine;
		image->build_id_len = (uint8_t)elf_build_id(elf, image->build_id,
							    sizeof(image->build_id));
		err = python_version_find(elf, &dynsym, path_hint, image, why);
	}
	elf_symbols_free(&dynsym);
	if (!err)
		python_gc_find(elf, GC_TRY_ALL, image);
	return err;
}

int python_image_read(int fd, const char *path_hint, struct python_image *ret, struct why *why)
{
	struct python_image image = {};
	struct elf_file elf;
	struct why reason;
	int err;

	err = elf_file_open(fd, &elf, &reason);
	if (err == -ENOTSUP && !names_python(path_hint))
		return -ENOENT; /* some program for another machine: not worth a word */
	if (err)
		return why_fail(why, -err, "%s: %s", path_hint ? path_hint : "a file", reason.text);
	err = read_image(&elf, path_hint, &image, why);
	elf_file_close(&elf);
	if (!err)
		*ret = image;
	return err;
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
