/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded DDL (sql/tables, sql/views): print, apply, check. */
#ifndef UNDERSPAN_CLICKHOUSE_SCHEMA_H
#define UNDERSPAN_CLICKHOUSE_SCHEMA_H

#include <stdbool.h>

#include "clickhouse/client.h"
#include "base/util.h"

/* `cluster` NULL: single server; `traces` NULL: otel_traces; `prefix`: own_names.h. 0 or -errno
 * with why. */
int clickhouse_schema_print(const char *database, const char *cluster, const char *traces,
			    const char *prefix, struct why *why);

struct schema_request {
	const char *cluster; /* NULL: single server */
	const char *traces;  /* the spans' table; NULL: otel_traces */
	uint64_t agents;     /* number of writing agents; 0: those of the last ten minutes */
	bool own_store;	     /* also creates the spans' tables (sql/otel/), with fewer messages */
};

/*
 * Creates the endpoint's database and missing tables and views, and upgrades existing ones
 * (upgrade.h): columns, types, deduplication windows, views. Logs each statement. Keeps rows, the
 * TTL and additions of the operator; a database of a newer version is unchanged, with a warning.
 * Can run concurrently, and again after a failure.
 */
int clickhouse_schema_apply(const struct clickhouse_endpoint *endpoint,
			    const struct schema_request *request, struct why *why);

/*
 * Prints the plan of clickhouse_schema_apply() and remaining differences; changes nothing, needs
 * only read rights.
 */
int clickhouse_schema_check(const struct clickhouse_endpoint *endpoint,
			    const struct schema_request *request, bool *ret_same, struct why *why);

#endif
