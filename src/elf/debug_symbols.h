/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of a stripped file: from a debug file found by build id, from the file named in
 * .gnu_debuglink, or compressed in the file itself.
 */
#ifndef UNDERSPAN_ELF_DEBUG_SYMBOLS_H
#define UNDERSPAN_ELF_DEBUG_SYMBOLS_H

#include "elf/elf_file.h"

/* In order of preference. */
enum debug_source {
	DEBUG_OWN,	/* .symtab */
	DEBUG_BUILD_ID, /* /usr/lib/debug/.build-id/12/3456.debug, the host's or the process's */
	DEBUG_LINK, /* .gnu_debuglink: a file name, searched in three directories; only one file is
		       read */
	DEBUG_MINI, /* .gnu_debugdata: an ELF file, xz */
	N_DEBUG_SOURCES,
};

/*
 * 0: `ret` has at least one symbol; free with elf_symbols_free(). -ENOENT: no such source, or of a
 * different build. Searches the files of the host and of the process elf->host_pid.
 */
int debug_symbols_load(const struct elf_file *elf, enum debug_source source,
		       struct elf_symbols *ret);

/* "its symbol table" */
const char *debug_source_text(enum debug_source source);

#endif
