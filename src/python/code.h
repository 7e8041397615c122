/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects of another process: which function of which file, and which line an instruction is.
 */
#ifndef UNDERSPAN_PYTHON_CODE_H
#define UNDERSPAN_PYTHON_CODE_H

#include "python/objects.h"
#include "python_stack.h"

/* Bytes with the NUL. A file's path has as many as the kernel allows one, and the mark of a cut. */
enum {
	PYTHON_FUNCTION_MAX = 1024,
	PYTHON_FILE_MAX = 4096 + 3,
	PYTHON_FRAME_TEXT_MAX = PYTHON_FUNCTION_MAX + PYTHON_FILE_MAX + 32,
};

/*
 * "function (file:line)", the function by its qualified name where the version has one; without the
 * line where the code has none there; "" for code of the interpreter's own. A name that is longer
 * than there is room for ends with "…". -ESTALE: the code
 * object is not the one that was seen.
 */
int python_frame_text(struct remote *r, const struct python_frame *frame,
		      char ret[PYTHON_FRAME_TEXT_MAX]);

/*
 * The line of an instruction, or -1 where it has none. `ip` as python_frame has it, but with
 * PYTHON_IP_POINTER counted from the first instruction.
 */
int python_line(const struct python_offsets *offsets, const uint8_t *table, size_t size,
		int firstlineno, uint32_t ip);

#endif
