/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DDL for clusters: from a CREATE statement for a single server to replicated local tables with a
 * Distributed table, and views on every node.
 */
#ifndef UNDERSPAN_CLICKHOUSE_DDL_H
#define UNDERSPAN_CLICKHOUSE_DDL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* A file of sql/tables or sql/views as the statements to run, in order; heap. */
struct ddl {
	char *statements[2]; /* without the closing semicolon; the second may be NULL */
};

void ddl_free(struct ddl *ddl);

/* Statements quote the name: -EINVAL for one that would end the quote. NULL: no cluster. */
int ddl_check_cluster(const char *cluster, struct why *why);

/*
 * `text`: one CREATE TABLE IF NOT EXISTS or CREATE [OR REPLACE] VIEW [IF NOT EXISTS]; `cluster`
 * NULL: unchanged. `name`: for messages. -EINVAL: other statement.
 */
int ddl_make(const char *name, const char *text, const char *cluster, struct ddl *ret_ddl,
	     struct why *why);

/* Whether the text mentions the table outside of comments. */
bool ddl_mentions(const char *text, const char *table);

#endif
