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
	uint64_t keep_ns; /* TTL */
};
extern struct ddl_places ddl_places;

/* -EINVAL: a value that would not stay within its quotes, or the same path for all tables. */
int ddl_places_check(struct why *why);

/* Puts the choices into a CREATE TABLE; replaces *statement. 0 or -ENOMEM. */
int ddl_places_put(char **statement, struct why *why);

#endif
