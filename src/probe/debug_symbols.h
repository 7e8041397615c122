/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols that were stripped off a file, where somebody kept them: in a debug file that is
 * known by the build id, in one that the file names, or compressed in the file itself.
 */
#ifndef UNDERSPAN_PROBE_DEBUG_SYMBOLS_H
#define UNDERSPAN_PROBE_DEBUG_SYMBOLS_H

#include "probe/elf_file.h"

/* In the order in which they are worth a look. */
enum debug_source {
	DEBUG_OWN,	/* .symtab */
	DEBUG_BUILD_ID, /* /usr/lib/debug/.build-id/12/3456.debug, the host's or the process's */
	DEBUG_LINK,	/* .gnu_debuglink: a file name, to be looked for in three folders */
	DEBUG_MINI,	/* .gnu_debugdata: an ELF file, xz */
	N_DEBUG_SOURCES,
};

/*
 * 0: `ret` has at least one symbol and needs elf_symbols_free(). -ENOENT when there is no such
 * source, or it is another build's. Looked for among the host's files and elf->host_pid's.
 */
int debug_symbols_load(const struct elf_file *elf, enum debug_source source,
		       struct elf_symbols *ret);

/* "its symbol table" */
const char *debug_source_text(enum debug_source source);

#endif
