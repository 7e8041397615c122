/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DDL of sql/ for a cluster: from one CREATE statement for one server to replicated local
 * tables with a Distributed table in front, and views on every node.
 */
#ifndef UNDERSPAN_CLICKHOUSE_DDL_H
#define UNDERSPAN_CLICKHOUSE_DDL_H

#include <stdbool.h>
#include <stddef.h>

#include "util.h"

/* A file of sql/tables or sql/views as the statements to run, in order; heap. */
struct ddl {
	char *statements[2]; /* without the closing semicolon; the second may be NULL */
};

void ddl_free(struct ddl *ddl);

/*
 * `text` holds one CREATE TABLE IF NOT EXISTS or one CREATE [OR REPLACE] VIEW [IF NOT EXISTS];
 * `cluster` NULL: as it stands. `name` is for messages. -EINVAL if the text is something else.
 */
int ddl_make(const char *name, const char *text, const char *cluster, struct ddl *ret_ddl,
	     struct why *why);

/* Whether the text speaks of the table, outside of comments. */
bool ddl_mentions(const char *text, const char *table);

#endif
