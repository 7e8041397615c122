/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as JSON objects, one a line (JSONEachRow). The only writer of row JSON. */
#ifndef UNDERSPAN_JSON_H
#define UNDERSPAN_JSON_H

#include <stdbool.h>

#include "pipeline/buffer.h"
#include "pipeline/column.h"

/*
 * Appends one row and a newline. `row` is the table's row struct. With `with_table`, the object
 * begins with "table". Text that is no UTF-8 is replaced with U+FFFD, byte by byte. Returns 0 or
 * -ENOMEM, in which case nothing is appended.
 */
int json_append_row(struct buffer *b, const struct table *table, const void *row, bool with_table);

#endif
