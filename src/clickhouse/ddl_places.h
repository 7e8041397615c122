/* SPDX-License-Identifier: Apache-2.0 */
/* Where and how long new tables keep their rows: parts of the DDL that operators choose (`underspan
 * schema`). */
#ifndef UNDERSPAN_CLICKHOUSE_DDL_PLACES_H
#define UNDERSPAN_CLICKHOUSE_DDL_PLACES_H

#include <stdint.h>

#include "base/util.h"

/* NULL, 0: as in sql/tables. */
struct ddl_places {
	char *replica_path; /* in Keeper, of tables on a cluster; its macros make it one per table
			     */
	char *storage_policy;
	uint64_t keep_ns;     /* TTL */
	unsigned int engine;  /* enum ddl_engine */
	const char *database; /* of the tables behind Distributed ones; NULL: the current one */
};

/* The engine of new tables. Replicated and Shared ones have their path from the server where no
 * cluster is given. */
enum ddl_engine { DDL_ENGINE_AUTO, DDL_ENGINE_PLAIN, DDL_ENGINE_REPLICATED, DDL_ENGINE_SHARED };
extern const char *const ddl_engine_names[]; /* ends with NULL */

/* "Replicated", "Shared", or "" before MergeTree. */
const char *ddl_engine_prefix(const char *cluster);

/* Path in Keeper of a table whose replicas are all servers of all shards; heap, NULL: no memory. */
char *ddl_path_over_shards(const char *table);
extern struct ddl_places ddl_places;

/* -EINVAL: a value that would not stay within its quotes, or the same path for all tables. */
int ddl_places_check(const char *cluster, struct why *why);

/* Puts the choices into a CREATE TABLE; replaces *statement. 0 or -ENOMEM. */
int ddl_places_put(char **statement, const char *cluster, struct why *why);

#endif
