// SPDX-License-Identifier: Apache-2.0
/* Probe sites of take_gil(). See take_gil.h. */
#include "cpython/take_gil.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "elf/call_sites.h"
#include "elf/elf_file.h"
#include "elf/function_body.h"
#include "elf/functions.h"

/* A binary being read; on success free with program_close(). */
struct program {
	int fd;
	struct elf_file elf;
	struct elf_symbols symbols; /* symbols of .symtab; n 0: stripped */
	struct functions functions;
};

static void program_close(struct program *program)
{
	functions_free(&program->functions);
	elf_symbols_free(&program->symbols);
	elf_file_close(&program->elf);
	close(program->fd);
}

static int program_open(const char *path, struct program *ret, struct why *why)
{
	int err;

	*ret = (struct program){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
	if (ret->fd < 0)
		return why_fail(why, errno, "cannot open the file: %s", strerror(errno));
	err = elf_file_open(ret->fd, &ret->elf, why);
	if (err) {
		close(ret->fd);
		return err;
	}
	err = elf_load_readonly(&ret->elf, why);
	if (!err && elf_symbols_load(&ret->elf, SHT_SYMTAB, &ret->symbols) == 0)
		err = functions_from_symbols(&ret->symbols, &ret->functions, why);
	else if (!err)
		err = functions_from_unwind_table(&ret->elf, &ret->functions, why);
	if (err)
		program_close(ret);
	return err;
}

/* ---- the calls ---- */

/* Whether the function is exported: then take_gil() was inlined into it. */
static bool is_exported(const struct elf_file *elf, const struct function *function)
{
	struct elf_symbols symbols;
	bool exported = false;

	if (elf_symbols_load(elf, SHT_DYNSYM, &symbols))
		return false;
	for (size_t i = 0; i < symbols.n && !exported; i++)
		exported = ELF64_ST_TYPE(symbols.items[i].st_info) == STT_FUNC &&
			   symbols.items[i].st_shndx != SHN_UNDEF &&
			   symbols.items[i].st_value == function->start;
	elf_symbols_free(&symbols);
	return exported;
}

static int find_calls(const struct program *program, struct call_site *ret, size_t max,
		      struct why *why)
{
	return call_sites_find(&program->elf, &program->functions, "pthread_cond_timedwait", ret,
			       max, why);
}

static int find_waits(const char *path, struct take_gil_waits *ret, struct why *why)
{
	struct call_site sites[ARRAY_SIZE(ret->call)];
	struct take_gil_waits found = {};
	struct program program;
	int err = program_open(path, &program, why), n;

	if (err)
		return err;
	n = find_calls(&program, sites, ARRAY_SIZE(sites), why);
	for (int i = 0; i < n; i++) {
		if (!elf_va_to_offset(&program.elf, sites[i].va, &found.call[i]) ||
		    !elf_va_to_offset(&program.elf, sites[i].next, &found.resume[i]))
			n = why_fail(why, EINVAL, "code at %#llx is not in the file",
				     (unsigned long long)sites[i].va);
	}
	program_close(&program);
	if (n < 0)
		return n;
	found.n = (size_t)n;
	*ret = found;
	return 0;
}

/* ---- the function ---- */

static int add_offset(const struct elf_file *elf, uint64_t va, uint64_t *items, size_t *n,
		      size_t max, struct why *why)
{
	if (*n == max || !elf_va_to_offset(elf, va, &items[*n]))
		return why_fail(why, ENOTSUP, "take_gil() has too many exits to probe");
	(*n)++;
	return 0;
}

static int add_function(const struct program *program, const struct function *entry,
			struct take_gil_bounds *ret, struct why *why)
{
	const struct elf_file *elf = &program->elf;
	struct function_body body;
	uint64_t exits[ARRAY_SIZE(ret->exit)];
	int err = function_body_read(elf, &program->functions, entry, &body, why), n;

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

static bool is_take_gil(struct elf_name name)
{
	static const char wanted[] = "take_gil";
	size_t length = sizeof(wanted) - 1;

	return elf_name_begins(name, wanted) &&
	       (name.length == length || name.text[length] == '.') && !elf_name_has(name, ".cold");
}

static int add_by_symbol(const struct program *program, struct take_gil_bounds *ret,
			 struct why *why)
{
	const struct elf_symbols *symbols = &program->symbols;
	int err = 0;

	for (size_t i = 0; !err && i < symbols->n; i++) {
		const Elf64_Sym *sym = &symbols->items[i];
		const struct function *f;

		if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC ||
		    !is_take_gil(elf_symbol_name(symbols, sym)))
			continue;
		f = functions_find(&program->functions, sym->st_value);
		if (f)
			err = add_function(program, f, ret, why);
	}
	return err;
}

static int add_by_calls(const struct program *program, struct take_gil_bounds *ret, struct why *why)
{
	struct call_site sites[ARRAY_SIZE(ret->entry)];
	int n = find_calls(program, sites, ARRAY_SIZE(sites), why), err = n < 0 ? n : 0;

	for (int i = 0; !err && i < n; i++) {
		bool again = false;

		for (int k = 0; k < i; k++)
			again |= sites[k].function.start == sites[i].function.start;
		if (is_exported(&program->elf, &sites[i].function))
			err = why_fail(why, ENOTSUP, "take_gil() is inlined into another function");
		else if (!again)
			err = add_function(program, &sites[i].function, ret, why);
	}
	return err;
}

static int find_bounds(const char *path, struct take_gil_bounds *ret, struct why *why)
{
	struct take_gil_bounds found = {};
	struct program program;
	int err = program_open(path, &program, why);

	if (err)
		return err;
	err = add_by_symbol(&program, &found, why);
	if (!err && !found.n_entry)
		err = add_by_calls(&program, &found, why);
	program_close(&program);
	if (!err)
		*ret = found;
	return err;
}

/* ---- in a reader process ---- */

struct search {
	struct reading reading;
	struct take_gil_waits waits;
	struct take_gil_bounds bounds;
};

static void waits_in_process(void *argument, struct read_extra *extra)
{
	struct search *s = argument;

	reading_begin(&s->reading, extra);
	s->reading.err = find_waits(s->reading.path, &s->waits, &s->reading.why);
}

static void bounds_in_process(void *argument, struct read_extra *extra)
{
	struct search *s = argument;

	reading_begin(&s->reading, extra);
	s->reading.err = find_bounds(s->reading.path, &s->bounds, &s->reading.why);
}

int take_gil_find_waits(const struct readable_file *file, struct take_gil_waits *ret,
			struct why *why)
{
	AUTO_FREE struct search *s = calloc(1, sizeof(*s));
	int err = s ? file_read(file, waits_in_process, &s->reading, sizeof(*s), why)
		    : why_fail(why, ENOMEM, "out of memory");

	if (!err)
		*ret = s->waits;
	return err;
}

int take_gil_find_bounds(const struct readable_file *file, struct take_gil_bounds *ret,
			 struct why *why)
{
	AUTO_FREE struct search *s = calloc(1, sizeof(*s));
	int err = s ? file_read(file, bounds_in_process, &s->reading, sizeof(*s), why)
		    : why_fail(why, ENOMEM, "out of memory");

	if (!err)
		*ret = s->bounds;
	return err;
}
