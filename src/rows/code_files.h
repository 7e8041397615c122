/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of mapped files, read by jobs through a process that maps the file. Bounded; the least
 * recently used file is evicted.
 */
#ifndef UNDERSPAN_ROWS_CODE_FILES_H
#define UNDERSPAN_ROWS_CODE_FILES_H

#include "rows/code_maps.h"
#include "rows/row_context.h"

struct code_file;

/* False: pending. *ret NULL: no file. */
bool code_file_of(struct row_context *context, uint32_t host_pid, struct mapping *m,
		  struct code_file **ret);

/* The function at an offset of the file; NULL: no symbol. Valid until code_files_next_row(). */
const char *code_file_symbol(const struct code_file *file, uint64_t offset);

/* Files used by the previous row may be evicted. */
void code_files_next_row(void);

/* Does not evict files with names borrowed by the current row. */
void code_files_make_room(void);

void code_files_done(void);

#endif
