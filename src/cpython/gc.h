/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of a collection in a Python image. Three methods, best first: static probes (exact
 * bounds), the function by symbol, the function by content.
 */
#ifndef UNDERSPAN_CPYTHON_GC_H
#define UNDERSPAN_CPYTHON_GC_H

#include "elf/elf_file.h"
#include "cpython/image.h"

enum {
	GC_TRY_USDT = 1 << GC_METHOD_USDT,
	GC_TRY_SYMBOL = 1 << GC_METHOD_SYMBOL,
	GC_TRY_SCAN = 1 << GC_METHOD_SCAN,
	GC_TRY_ALL = GC_TRY_USDT | GC_TRY_SYMBOL | GC_TRY_SCAN
};

/*
 * Fills the gc_* members of `image`, whose version must be known, by the first method of `ways`
 * supported by the file; otherwise GC_METHOD_NONE and gc_why.
 */
void python_gc_find(struct elf_file *elf, unsigned int ways, struct python_image *image);

#endif
