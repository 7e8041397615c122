/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes this process look like a Python: memory with an interpreter state in the layout of
 * CPython 3.9, read by the agent like a real interpreter.
 */
#ifndef UNDERSPAN_ROWS_INTERPRETER_H
#define UNDERSPAN_ROWS_INTERPRETER_H

#include <stdint.h>

#include "python_stack.h"

/* Adds this process to the table of Python processes. */
void interpreter_begin(void);
/* Adds a refused process with an unread interpreter. */
void interpreter_refuse(uint32_t host_pid);
/* Removes both and all threads. */
void interpreter_end(void);

/* Adds an entry to threading._active. `name`: ASCII. */
void interpreter_add_thread(uint64_t ident, uint32_t native_id, const char *name);

/* A frame at the fourth instruction of a new function, at line + 2. */
struct python_frame interpreter_call(const char *function, const char *file, uint32_t line);
/* Puts a new code object at the frame's address. */
void interpreter_drop_code(const struct python_frame *frame);

/* Code address of internal frames of the interpreter. */
enum { INTERPRETER_OWN_FRAME = 3 };

#endif
