/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as JSON objects, one per line (JSONEachRow). All row JSON is written here. */
#ifndef UNDERSPAN_PIPELINE_JSON_H
#define UNDERSPAN_PIPELINE_JSON_H

#include <stdbool.h>

#include "base/buffer.h"
#include "rows/column.h"

/*
 * Appends one row and a newline. `row` is the table's row struct. With `with_table`, the object
 * begins with "table". Invalid UTF-8 is replaced with U+FFFD, byte by byte. 0, or -ENOMEM with
 * nothing appended.
 */
int json_append_row(struct buffer *b, const struct table *table, const void *row, bool with_table);

#endif
