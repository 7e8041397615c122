/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects of another process: function, file, and line of an instruction. */
#ifndef UNDERSPAN_CPYTHON_CODE_H
#define UNDERSPAN_CPYTHON_CODE_H

#include "cpython/objects.h"
#include "python_stack.h"

/* Sizes including the NUL. Files: PATH_MAX plus the truncation mark. */
enum {
	PYTHON_FUNCTION_MAX = 1024,
	PYTHON_FILE_MAX = 4096 + 3,
	PYTHON_FRAME_TEXT_MAX = PYTHON_FUNCTION_MAX + PYTHON_FILE_MAX + 32,
};

/*
 * "function (file:line)", with the qualified name where the version has one; without the line if
 * the instruction has none; "" for the interpreter's own code. Truncated names end with "…".
 * -ESTALE: another code object is at the address now.
 */
int python_frame_text(struct remote *r, const struct python_frame *frame,
		      char ret[PYTHON_FRAME_TEXT_MAX]);

/*
 * The line of an instruction; -1: no line. `ip` as in python_frame, but relative to the first
 * instruction for PYTHON_IP_POINTER.
 */
int python_line(const struct python_offsets *offsets, const uint8_t *table, size_t size,
		int firstlineno, uint32_t ip);

#endif
