/* SPDX-License-Identifier: Apache-2.0 */
/* The DDL that the program carries (sql/tables, sql/views): printed, or created where it is
 * missing. */
#ifndef UNDERSPAN_CLICKHOUSE_SCHEMA_H
#define UNDERSPAN_CLICKHOUSE_SCHEMA_H

#include <stdbool.h>

#include "clickhouse/client.h"
#include "util.h"

/* `cluster` NULL: for one server. Errors: 0 or -errno with why. */
int clickhouse_schema_print(const char *database, const char *cluster, struct why *why);

/*
 * Creates the endpoint's database, then the tables, then the views; what exists stays as it is. A
 * view on otel_traces is left out, with a note in the log, while there is no such table.
 * `with_otel`: make the spans' tables too (sql/otel/), as the collector would: for a store of our
 * own, which a collector may not have written to yet.
 */
int clickhouse_schema_apply(const struct clickhouse_endpoint *endpoint, const char *cluster,
			    bool with_otel, struct why *why);

#endif
