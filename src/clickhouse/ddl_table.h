/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses a file of sql/tables and compares the result with a table of a database: statements that
 * bring the table up to date, and differences that no statement can remove.
 */
#ifndef UNDERSPAN_CLICKHOUSE_DDL_TABLE_H
#define UNDERSPAN_CLICKHOUSE_DDL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct ddl_column {
	char *name, *type;
	char *definition; /* text after the name: type, default, comment, codec */
	bool alias;	  /* computed, not stored */
};

struct ddl_table {
	char *name;
	struct ddl_column *columns;
	size_t n_columns;
};

/*
 * `text`: a CREATE TABLE with one column per line, indented by four. Heap; -EINVAL: other text,
 * -ENOMEM.
 */
int ddl_table_parse(const char *file, const char *text, struct ddl_table *ret, struct why *why);
void ddl_table_free(struct ddl_table *table);

/* The table according to system.columns and system.tables. Strings are borrowed. */
struct live_column {
	const char *name, *type, *kind; /* kind: "", "DEFAULT", "MATERIALIZED", "ALIAS" */
	bool is_key;			/* part of the sorting or partition key */
};

struct live_table {
	const char *name; /* local tables of a cluster have a suffix */
	const char *engine, *engine_full;
	const struct live_column *columns;
	size_t n_columns;
};

/*
 * A difference, removed by `statement`; NULL: cannot be removed without losing rows, explained in
 * `what`. Returns 0, or -errno to end the comparison.
 */
typedef int (*ddl_on_difference)(const char *what, const char *statement, void *context);

/*
 * `cluster` NULL: single server. `window`: deduplication window in INSERTs, for the settings of the
 * table's engine. Additions by the operator are not differences: columns, wider types, larger
 * windows, the TTL. Tables outside of the MergeTree family that are not Distributed are the
 * operator's: differences have no statement.
 */
int ddl_table_compare(const struct ddl_table *wanted, const struct live_table *live,
		      const char *cluster, uint64_t window, ddl_on_difference on_difference,
		      void *context);

/* Whether replicas share the deduplication log: Replicated* and Shared*. */
bool ddl_engine_is_replicated(const char *engine);

/* Value of `name = N` in the SETTINGS of engine_full; false: absent. */
bool ddl_setting(const char *engine_full, const char *name, uint64_t *ret);

#endif
