// SPDX-License-Identifier: Apache-2.0
/* Function names by address. See symbols.h. */
#include "rows/symbols.h"

#include <string.h>

#include "base/clock.h"
#include "elf/symbol_table.h"
#include "rows/code_files.h"
#include "rows/code_maps.h"

static const char unread_text[] = "<unread>";

static struct symbol_table kernel_symbols;

/* Few functions are in most stacks, and a search among 200,000 symbols touches cold memory. */
enum { MAX_KNOWN_SYMBOLS = 512 };
static struct known_symbol {
	uint64_t address;
	const char *name;
} known_symbols[MAX_KNOWN_SYMBOLS];

/* NULL: no code at the address. */
static const char *user_symbol(struct row_context *context, struct process_maps *maps,
			       uint64_t address)
{
	struct mapping *m = code_map_find(maps->items, maps->n, address);
	uint64_t now_ns = m ? 0 : clock_monotonic_ns();
	const char *name = NULL;
	struct code_file *file;

	if (!m && now_ns - maps->read_ns > CODE_MAPS_REREAD_NS)
		code_maps_read(maps, now_ns);
	if (!m && maps->being_read)
		row_waits_for(context, maps->host_pid);
	if (!m)
		return maps->n || (maps->read_ns && !maps->being_read) ? NULL : unread_text;
	if (!m->file_id.ino)
		return m->name;
	if (!code_file_of(context, maps->host_pid, m, &file))
		return unread_text;
	if (file)
		name = code_file_symbol(file, address - m->low + m->offset);
	return name ? name : m->name;
}

/* ---- rows ---- */

void symbols_next_row(void)
{
	code_maps_free_retired();
	code_files_next_row();
}

size_t symbols_user_stack(struct row_context *context, uint32_t host_pid, const __u64 *addresses,
			  size_t max, const char **ret)
{
	struct process_maps *maps;
	size_t n = 0;

	if (!max || !addresses[0])
		return 0;
	maps = code_maps_of(host_pid);
	for (; n < max && addresses[n]; n++) {
		/* all frames but the leaf hold return addresses */
		ret[n] = maps ? user_symbol(context, maps, addresses[n] - (n > 0)) : NULL;
		/* without frame pointers the values are arbitrary */
		if (!ret[n] && n && maps && maps->n)
			break;
		if (!ret[n])
			ret[n] = "[unknown]";
		context->unread |= ret[n] == unread_text;
	}
	return n;
}

const char *symbols_kernel(uint64_t address)
{
	struct known_symbol *known = &known_symbols[(address ^ address >> 9) % MAX_KNOWN_SYMBOLS];

	if (known->address != address || !known->name)
		*known = (struct known_symbol){ address,
						symbol_table_find(&kernel_symbols, address) };
	return known->name ? known->name : "[kernel]";
}

void symbols_process_appeared(uint32_t host_pid)
{
	symbols_process_gone(host_pid); /* of the program before exec() */
	code_files_make_room();
	code_maps_of(host_pid);
}

void symbols_process_gone(uint32_t host_pid)
{
	code_maps_free_retired(); /* no row is in progress, and the next may be long off */
	code_maps_process_gone(host_pid);
}

void symbols_init(void)
{
	symbol_table_read_kernel(&kernel_symbols);
}

void symbols_done(void)
{
	code_maps_forget_all();
	code_maps_free_retired();
	code_files_done();
	symbol_table_free(&kernel_symbols);
	memset(known_symbols, 0, sizeof(known_symbols));
}
