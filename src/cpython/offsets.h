/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of the interpreter state for a build of CPython. */
#ifndef UNDERSPAN_CPYTHON_OFFSETS_H
#define UNDERSPAN_CPYTHON_OFFSETS_H

#include "cpython/image.h"

/*
 * Offsets of the build: from a table for 3.8 to 3.12, from _Py_DebugOffsets in the file since 3.13.
 * `fd`: the file of `image`. -ENOTSUP with `why`: no offsets known. `ret`: see python_offsets.h.
 */
struct python_offsets;
int python_offsets_for(const struct python_image *image, int fd, struct python_offsets *ret,
		       struct why *why);

/* Source of the offsets: "described" by the program (_Py_DebugOffsets), or "table" per version. */
const char *python_offsets_method(const struct python_image *image);

#endif
