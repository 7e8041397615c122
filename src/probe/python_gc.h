/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a collection begins and ends in one Python image. Three ways, best first: static probes
 * (they bracket exactly the collection), the function by its name, the function by its content.
 */
#ifndef UNDERSPAN_PROBE_PYTHON_GC_H
#define UNDERSPAN_PROBE_PYTHON_GC_H

#include "probe/elf_file.h"
#include "probe/python.h"

enum {
	GC_TRY_USDT = 1 << GC_METHOD_USDT,
	GC_TRY_SYMBOL = 1 << GC_METHOD_SYMBOL,
	GC_TRY_SCAN = 1 << GC_METHOD_SCAN,
	GC_TRY_ALL = GC_TRY_USDT | GC_TRY_SYMBOL | GC_TRY_SCAN
};

/*
 * Fills the gc_* members of `image`, whose version must be known, by the first way of `ways` that
 * the file offers; gc_method GC_METHOD_NONE and gc_why when none does.
 */
void python_gc_find(struct elf_file *elf, unsigned int ways, struct python_image *image);

#endif
