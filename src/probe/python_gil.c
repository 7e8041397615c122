// SPDX-License-Identifier: Apache-2.0
/* Where GILs lie and where they are taken. See python_gil.h. */
#include "probe/python_gil.h"

#include <fcntl.h>
#include <string.h>

#include "probe/elf_file.h"
#include "probe/function_body.h"
#include "probe/functions.h"
#include "probe/memory.h"

enum { MAX_INTERPRETERS = 256, GIL_COND_IN_STRUCT = 32 };

/* The struct as the probes know it: a free-threaded build has 8 bytes in front of it. */
static uint64_t normal(uint64_t gil, const struct python_offsets *offsets)
{
	return gil + offsets->gil_cond - GIL_COND_IN_STRUCT;
}

static bool contains(const uint64_t *gils, size_t n, uint64_t gil)
{
	for (size_t i = 0; i < n; i++) {
		if (gils[i] == gil)
			return true;
	}
	return false;
}

size_t python_gil_find(uint32_t host_pid, uint64_t runtime, const struct python_offsets *offsets,
		       uint64_t *ret_gils, size_t max)
{
	uint64_t interp, gil;
	size_t n = 0;

	if (offsets->gil_kind == PYTHON_GIL_IN_RUNTIME) {
		ret_gils[0] = normal(runtime + offsets->gil, offsets);
		return 1;
	}
	if (!memory_read(host_pid, runtime + offsets->runtime_interpreters_head, &interp, 8))
		return 0;
	for (int i = 0; i < MAX_INTERPRETERS && interp && n < max; i++) {
		if (!memory_read(host_pid, interp + offsets->gil, &gil, 8))
			break;
		gil = gil ? normal(gil, offsets) : 0;
		if (gil && !contains(ret_gils, n, gil))
			ret_gils[n++] = gil;
		if (!memory_read(host_pid, interp + offsets->interp_next, &interp, 8))
			break;
	}
	return n;
}

static int open_elf(const struct python_binary *binary, int *ret_fd, struct elf_file *ret,
		    struct why *why)
{
	int fd = open(binary->attach_path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return why_fail(why, errno, "cannot open it: %s", strerror(errno));
	err = elf_file_open(fd, ret, why);
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int python_gil_check(const struct python_binary *binary, uint64_t *ret_base_va, struct why *why)
{
	AUTO_CLOSE int fd = -1;
	struct elf_file elf;
	int err;

	if (binary->image.free_threaded)
		return why_fail(why, ENOTSUP, "a free-threaded build: there is no GIL to wait for");
	err = open_elf(binary, &fd, &elf, why);
	if (err)
		return err;
	if (elf_needs(&elf, "libc.musl"))
		err = why_fail(why, ENOTSUP,
			       "it is linked with musl, whose condition variables do not show "
			       "what a thread waits for");
	else if (!elf.n_loads)
		err = why_fail(why, EINVAL, "the file has nothing to load");
	else
		*ret_base_va = elf.loads[0].va - elf.loads[0].file_offset;
	elf_file_close(&elf);
	return err;
}

/* ---- take_gil() ---- */

static int add_offset(const struct elf_file *elf, uint64_t va, uint64_t *items, size_t *n,
		      size_t max, struct why *why)
{
	if (*n == max || !elf_va_to_offset(elf, va, &items[*n]))
		return why_fail(why, ENOTSUP, "take_gil() has too many exits to probe");
	(*n)++;
	return 0;
}

static int add_function(const struct elf_file *elf, const struct functions *functions,
			const struct function *entry, struct take_gil_sites *ret, struct why *why)
{
	struct function_body body;
	uint64_t exits[ARRAY_SIZE(ret->exit)];
	int err = function_body_read(elf, functions, entry, &body, why), n;

	if (err)
		return err;
	n = function_body_exits(&body, exits, ARRAY_SIZE(exits), why);
	function_body_free(&body);
	if (n < 0)
		return n;
	err = add_offset(elf, entry->start, ret->entry, &ret->n_entry, ARRAY_SIZE(ret->entry), why);
	for (int i = 0; !err && i < n && i < (int)ARRAY_SIZE(exits); i++)
		err = add_offset(elf, exits[i], ret->exit, &ret->n_exit, ARRAY_SIZE(ret->exit),
				 why);
	return err;
}

static bool is_take_gil(const char *name)
{
	static const char wanted[] = "take_gil";
	size_t length = sizeof(wanted) - 1;

	return !strncmp(name, wanted, length) && (!name[length] || name[length] == '.') &&
	       !strstr(name, ".cold");
}

static int find_by_symbol(struct elf_file *elf, struct take_gil_sites *ret, struct why *why)
{
	struct functions functions = {};
	struct elf_symbols symbols;
	int err;

	if (elf_symbols_load(elf, SHT_SYMTAB, &symbols))
		return why_fail(why, ENOTSUP, "it is stripped: take_gil() has no symbol");
	err = functions_from_symbols(&symbols, &functions, why);
	if (!err)
		err = elf_load_readonly(elf, why);
	for (size_t i = 0; !err && i < symbols.n; i++) {
		const Elf64_Sym *sym = &symbols.items[i];
		const struct function *f;

		if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC ||
		    !is_take_gil(elf_symbol_name(&symbols, sym)))
			continue;
		f = functions_find(&functions, sym->st_value);
		if (f)
			err = add_function(elf, &functions, f, ret, why);
	}
	functions_free(&functions);
	elf_symbols_free(&symbols);
	return err || ret->n_entry ? err : why_fail(why, ENOTSUP, "take_gil() has no symbol");
}

int python_take_gil_find(const struct python_binary *binary, struct take_gil_sites *ret,
			 struct why *why)
{
	AUTO_CLOSE int fd = -1;
	struct elf_file elf;
	int err = open_elf(binary, &fd, &elf, why);

	if (err)
		return err;
	*ret = (struct take_gil_sites){};
	err = find_by_symbol(&elf, ret, why);
	elf_file_close(&elf);
	return err;
}
