/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a live measurement, with the members of sql/timeline/NAME.sql. */
#ifndef UNDERSPAN_COMMANDS_TIMELINE_LIVE_H
#define UNDERSPAN_COMMANDS_TIMELINE_LIVE_H

#include <jansson.h>

#include "rows/column.h"

/* Released by the caller; NULL: out of memory. */
json_t *timeline_live_row(const struct table *table, const void *row);

#endif
