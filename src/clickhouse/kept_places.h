/* SPDX-License-Identifier: Apache-2.0 */
/* Choices for new tables (ddl_places.h) that do not reach the tables that exist. */
#ifndef UNDERSPAN_CLICKHOUSE_KEPT_PLACES_H
#define UNDERSPAN_CLICKHOUSE_KEPT_PLACES_H

#include "clickhouse/live_schema.h"

/* A line for each choice that differs from existing tables, with how many and the way to change
 * them. `prefix`: own_names.h. */
void kept_places_tell(const struct live_schema *live, const char *prefix);

#endif
