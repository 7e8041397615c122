/* SPDX-License-Identifier: Apache-2.0 */
/* Existing tables and views of underspan in a database, from system.tables and system.columns. */
#ifndef UNDERSPAN_CLICKHOUSE_LIVE_SCHEMA_H
#define UNDERSPAN_CLICKHOUSE_LIVE_SCHEMA_H

#include "clickhouse/client.h"
#include "clickhouse/ddl_table.h"
#include "clickhouse/traces.h"

struct live_object {
	const char *name, *engine, *engine_full, *comment, *definition;
};

struct live_schema {
	struct live_object *objects; /* tables and views with names of underspan, and otel_traces */
	size_t n_objects;
	struct live_column *columns; /* columns of all tables, with table names */
	const char **column_tables;
	size_t n_columns;
	uint64_t version; /* largest version in ebpf_schema; 0: no such table */
	uint64_t agents;  /* hosts that wrote in the last ten minutes; 0: unknown */
	struct traces_form traces;
	void *memory; /* owns the strings */
};

/* `traces`: the spans' table as for traces_find(). Only needs the right to see the tables. Errors:
 * as clickhouse_query(), -EBADMSG. */
int live_schema_read(struct clickhouse_client *client, const char *traces, struct live_schema *ret,
		     struct why *why);
void live_schema_free(struct live_schema *live);

/* NULL: not found. */
const struct live_object *live_schema_find(const struct live_schema *live, const char *name);

/* The columns of a table, borrowed from `live`. */
struct live_table live_schema_table(const struct live_schema *live,
				    const struct live_object *object);

#endif
