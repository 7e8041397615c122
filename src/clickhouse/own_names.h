/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix before the names of underspan's own tables and views, for several installations in one
 * database. The program's SQL, also the rows in a spool, has the names of sql/; the client writes
 * the prefix into what it sends (client.c), the reader of a schema takes it off (live_schema.c).
 */
#ifndef UNDERSPAN_CLICKHOUSE_OWN_NAMES_H
#define UNDERSPAN_CLICKHOUSE_OWN_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "base/util.h"

/* -EINVAL: not letters, digits and underscores, or too long. NULL: none. */
int own_names_check(const char *prefix, struct why *why);

/* A table or view of sql/, also with _local. */
bool own_names_has(struct text name);

/*
 * A copy of the statement with the prefix before own names: words, quoted names, and strings that
 * are such a name or end with "/" and one. Comments and rows behind FORMAT or VALUES are unchanged.
 * `prefix` NULL: unchanged. Heap; NULL: no memory.
 */
char *own_names_put(const char *sql, const char *prefix);

/* The same of a sentence for people, where an apostrophe is no quote. */
char *own_names_put_sentence(const char *sentence, const char *prefix);

/* The same of a placeholder's value: one that is an own name. */
char *own_names_put_value(const char *value, const char *prefix);

/* The name without the prefix; NULL: an own name of an installation without one. */
const char *own_names_take(const char *name, const char *prefix);

#endif
