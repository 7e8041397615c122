// SPDX-License-Identifier: Apache-2.0
/* Start and end of collections. See gc.h. */
#include "cpython/gc.h"

#include <string.h>

#include "elf/debug_symbols.h"
#include "elf/function_body.h"
#include "elf/functions.h"
#include "cpython/gc_scan.h"
#include "elf/stapsdt.h"

/* ---- by static probes ---- */

static int find_usdt(const struct elf_file *elf, struct python_image *image, struct why *why)
{
	size_t n_entry = stapsdt_find(elf, "python", "gc__start", image->gc_entry,
				      PYTHON_MAX_GC_ENTRIES);
	size_t n_exit = stapsdt_find(elf, "python", "gc__done", image->gc_exit,
				     PYTHON_MAX_GC_EXITS);

	if (!n_entry || !n_exit || n_entry > PYTHON_MAX_GC_ENTRIES || n_exit > PYTHON_MAX_GC_EXITS)
		return why_fail(why, ENOTSUP, "no usable static probes gc__start and gc__done");
	image->n_gc_entry = (uint32_t)n_entry;
	image->n_gc_exit = (uint32_t)n_exit;
	return 0;
}

/* ---- by function: entries and exits of all clones ---- */

static int add_sites(const struct elf_file *elf, const uint64_t *vas, size_t n,
		     struct probe_site *sites, uint32_t *n_sites, struct why *why)
{
	for (size_t i = 0; i < n; i++) {
		struct probe_site site = { .va = vas[i] };

		if (!elf_va_to_offset(elf, site.va, &site.file_offset))
			return why_fail(why, EINVAL, "code at %#llx is not in the file",
					(unsigned long long)site.va);
		sites[(*n_sites)++] = site;
	}
	return 0;
}

static int add_function(const struct elf_file *elf, const struct functions *functions,
			const struct function *entry, struct python_image *image, struct why *why)
{
	size_t room = PYTHON_MAX_GC_EXITS - image->n_gc_exit;
	uint64_t exits[PYTHON_MAX_GC_EXITS];
	struct function_body body;
	int err, n;

	err = function_body_read(elf, functions, entry, &body, why);
	if (err)
		return err;
	n = function_body_exits(&body, exits, room, why);
	function_body_free(&body);
	if (n < 0)
		return n;
	if (!n || (size_t)n > room || image->n_gc_entry == PYTHON_MAX_GC_ENTRIES)
		return why_fail(why, ENOTSUP, "the collecting function at %#llx has %d exits",
				(unsigned long long)entry->start, n);
	err = add_sites(elf, &entry->start, 1, image->gc_entry, &image->n_gc_entry, why);
	if (!err)
		err = add_sites(elf, exits, (size_t)n, image->gc_exit, &image->n_gc_exit, why);
	return err;
}

/*
 * The function of a single collection: `collect` up to 3.9, `gc_collect_main` since,
 * `_PyGC_Collect` in the incremental collector of 3.14.0 to 3.14.4. Clones have suffixes
 * (.constprop.0, .isra.0, .lto_priv.0, .llvm.123); a moved part (.cold) is not an entry.
 */
static bool is_collector_name(const struct python_image *image, struct elf_name name)
{
	static const struct {
		const char *name;
		uint8_t first_minor, last_minor;
	} collectors[] = {
		{ "collect", 8, 9 },
		{ "gc_collect_main", 9, UINT8_MAX },
		{ "_PyGC_Collect", 14, 14 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(collectors); i++) {
		size_t length = strlen(collectors[i].name);

		if (elf_name_begins(name, collectors[i].name) &&
		    (name.length == length || name.text[length] == '.') &&
		    image->minor >= collectors[i].first_minor &&
		    image->minor <= collectors[i].last_minor && !elf_name_has(name, ".cold"))
			return true;
	}
	return false;
}

/*
 * Since 3.13 the third argument is the reason. A function with the exact name follows the ABI; a
 * clone may have other arguments.
 */
static uint8_t reason_register(const struct python_image *image, struct elf_name name)
{
	enum { X86_64_RDX = 12, AARCH64_X2 = 2 };

	if (image->minor < 13 || elf_name_has(name, "."))
		return 0;
	return image->machine == EM_X86_64 ? X86_64_RDX : AARCH64_X2;
}

/*
 * Names are not unique: another module in the same program may have a function `collect`. CPython's
 * function refers to the collector's message.
 */
static bool prints_message(const struct elf_file *elf, const struct functions *functions,
			   const struct function *entry, const struct gc_texts *texts)
{
	struct function_body body;
	bool prints = false;

	if (function_body_read(elf, functions, entry, &body, NULL))
		return false;
	for (size_t i = 0; i < texts->n; i++)
		prints |= function_body_refers_to(&body, texts->va[i]);
	function_body_free(&body);
	return prints;
}

enum { MAX_NAMED = 64 }; /* each is disassembled */

static int add_named(const struct elf_file *elf, const struct elf_symbols *symbols,
		     const struct functions *functions, const struct gc_texts *texts,
		     struct python_image *image, struct why *why)
{
	size_t n_named = 0;

	for (size_t i = 0; i < symbols->n; i++) {
		const Elf64_Sym *sym = &symbols->items[i];
		const struct function *f;
		int err;

		if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC ||
		    !is_collector_name(image, elf_symbol_name(symbols, sym)))
			continue;
		if (++n_named > MAX_NAMED)
			return why_fail(why, ENOTSUP,
					"more than %d symbols have the collecting function's name",
					MAX_NAMED);
		f = functions_find(functions, sym->st_value);
		if (!f || f->start != sym->st_value || !prints_message(elf, functions, f, texts))
			continue;
		err = add_function(elf, functions, f, image, why);
		if (err)
			return err;
		image->gc_entry[image->n_gc_entry - 1].reason_reg = reason_register(
			image, elf_symbol_name(symbols, sym));
	}
	if (!image->n_gc_entry)
		return why_fail(why, ENOTSUP, "no symbol of the collecting function");
	return 0;
}

/*
 * `functions`: all functions of the symbol table; debug files may lack exported symbols, so the
 * unwind table is used there.
 */
static int find_with(struct elf_file *elf, const struct elf_symbols *symbols, bool are_all,
		     struct python_image *image, struct why *why)
{
	struct functions functions = {};
	struct gc_texts texts;
	int err = elf_load_readonly(elf, why);

	if (err)
		return err;
	err = are_all ? functions_from_symbols(symbols, &functions, why)
		      : functions_from_unwind_table(elf, &functions, why);
	if (err)
		return err;
	gc_find_texts(elf, &texts);
	err = add_named(elf, symbols, &functions, &texts, image, why);
	functions_free(&functions);
	return err;
}

static int find_by_symbol(struct elf_file *elf, struct python_image *image, struct why *why)
{
	struct elf_symbols symbols;
	int err = why_fail(why, ENOTSUP, "no symbol table");

	for (int i = 0; err && i < N_DEBUG_SOURCES; i++) {
		if (debug_symbols_load(elf, (enum debug_source)i, &symbols))
			continue;
		image->n_gc_entry = image->n_gc_exit = 0;
		err = find_with(elf, &symbols, i == DEBUG_OWN, image, why);
		elf_symbols_free(&symbols);
		image->gc_symbols = debug_source_text((enum debug_source)i);
	}
	return err;
}

/*
 * In a build with the collector inlined into an allocation function, a probe would run at every
 * allocation. Allocation functions are exported; of the exported functions only these may be the
 * collector.
 */
static bool is_unrelated_export(const struct elf_symbols *dynsym, uint64_t va)
{
	for (size_t i = 0; i < dynsym->n; i++) {
		const Elf64_Sym *sym = &dynsym->items[i];
		struct elf_name name;

		if (sym->st_shndx == SHN_UNDEF || sym->st_value != va)
			continue;
		name = elf_symbol_name(dynsym, sym);
		if (!elf_name_begins(name, "PyGC_") && !elf_name_begins(name, "_PyGC_"))
			return true;
	}
	return false;
}

static int find_by_scan(struct elf_file *elf, struct python_image *image, struct why *why)
{
	struct function entries[GC_MAX_FUNCTIONS];
	struct functions functions = {};
	struct elf_symbols dynsym = {};
	struct gc_texts texts;
	int err, n;

	err = elf_load_readonly(elf, why);
	if (err)
		return err;
	gc_find_texts(elf, &texts);
	if (!texts.n)
		return why_fail(why, ENOTSUP, "the collector's message is not in the file");
	err = functions_from_unwind_table(elf, &functions, why);
	if (err)
		return err;
	elf_symbols_load(elf, SHT_DYNSYM, &dynsym); /* absent in static programs */
	n = gc_scan(elf, &functions, &texts, entries, why);
	err = n < 0 ? n : 0;
	for (int i = 0; i < n && !err; i++) {
		if (is_unrelated_export(&dynsym, entries[i].start))
			err = why_fail(why, ENOTSUP,
				       "the collector is inlined into another function");
		else
			err = add_function(elf, &functions, &entries[i], image, why);
	}
	elf_symbols_free(&dynsym);
	functions_free(&functions);
	return err;
}

void python_gc_find(struct elf_file *elf, unsigned int ways, struct python_image *image)
{
	static const enum gc_method order[] = { GC_METHOD_USDT, GC_METHOD_SYMBOL, GC_METHOD_SCAN };

	snprintf(image->gc_why.text, sizeof(image->gc_why.text), "no way to look was allowed");
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		struct why *why = &image->gc_why;
		int err;

		if (!(ways & (1u << order[i])))
			continue;
		image->n_gc_entry = image->n_gc_exit = 0;
		if (order[i] == GC_METHOD_USDT)
			err = find_usdt(elf, image, why);
		else if (order[i] == GC_METHOD_SYMBOL)
			err = find_by_symbol(elf, image, why);
		else
			err = find_by_scan(elf, image, why);
		if (!err) {
			image->gc_method = order[i];
			image->gc_why.text[0] = '\0';
			return;
		}
	}
	image->gc_method = GC_METHOD_NONE;
	image->n_gc_entry = image->n_gc_exit = 0;
}
