/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the function that performs a garbage collection by what it contains: the message
 * "gc: collecting generation %d...\n" that it prints when gc.DEBUG_STATS is set. Every CPython has
 * that text, and no other function refers to it. Works in stripped files.
 */
#ifndef UNDERSPAN_PROBE_GC_SCAN_H
#define UNDERSPAN_PROBE_GC_SCAN_H

#include "probe/functions.h"

enum { GC_MAX_TEXTS = 4, GC_MAX_FUNCTIONS = 16 };

/* The addresses of the message, `n` of them. */
struct gc_texts {
	uint64_t va[GC_MAX_TEXTS];
	size_t n;
};

/* All of these need elf_load_readonly(). */
void gc_find_texts(const struct elf_file *elf, struct gc_texts *ret);

/*
 * The entries of all functions that refer to one of the texts, moved parts resolved to the
 * function they belong to. Returns their number, 1 to GC_MAX_FUNCTIONS, or -ENOTSUP.
 */
int gc_scan(const struct elf_file *elf, const struct functions *functions,
	    const struct gc_texts *texts, struct function ret[GC_MAX_FUNCTIONS], struct why *why);

#endif
