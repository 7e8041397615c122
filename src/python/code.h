/* SPDX-License-Identifier: Apache-2.0 */
/* Code objects of another process: which function of which file, and which line an instruction is.
 */
#ifndef UNDERSPAN_PYTHON_CODE_H
#define UNDERSPAN_PYTHON_CODE_H

#include "python/objects.h"
#include "python_stack.h"

enum { PYTHON_FRAME_TEXT_MAX = 1024 };

/*
 * "function (file:line)", the function by its qualified name where the version has one; without the
 * line where the code has none there; "" for code of the interpreter's own. -ESTALE: the code
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
