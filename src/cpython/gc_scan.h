/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the GC function by content: the message "gc: collecting generation %d...\n", printed with
 * gc.DEBUG_STATS. Every CPython has the text, and only the GC function refers to the text. Works
 * for stripped files.
 */
#ifndef UNDERSPAN_CPYTHON_GC_SCAN_H
#define UNDERSPAN_CPYTHON_GC_SCAN_H

#include "elf/functions.h"

enum { GC_MAX_TEXTS = 4, GC_MAX_FUNCTIONS = 16 };

/* Addresses of the message. */
struct gc_texts {
	uint64_t va[GC_MAX_TEXTS];
	size_t n;
};

/* All functions need elf_load_readonly(). */
void gc_find_texts(const struct elf_file *elf, struct gc_texts *ret);

/*
 * Entries of all functions that refer to a text; moved parts are resolved to their functions.
 * Returns the number, 1 to GC_MAX_FUNCTIONS, or -ENOTSUP.
 */
int gc_scan(const struct elf_file *elf, const struct functions *functions,
	    const struct gc_texts *texts, struct function ret[GC_MAX_FUNCTIONS], struct why *why);

#endif
