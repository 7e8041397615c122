/* SPDX-License-Identifier: Apache-2.0 */
/* Options by key, in lists of tables that end with a table without options. */
#ifndef UNDERSPAN_BASE_CONFIG_SEARCH_H
#define UNDERSPAN_BASE_CONFIG_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/option.h"

/* Dashes of `typed` equal underscores. NULL: not found. */
const struct option *config_find_option(const struct option_table *tables, const char *typed,
					size_t len);

/*
 * The most similar key after `prefix`, as "; did you mean ..."; `otherwise`: no key is similar.
 * Returns buf.
 */
char *config_hint(const struct option_table *tables, const char *typed, size_t len,
		  const char *prefix, const char *otherwise, char *buf, size_t size);

/* Calls back for each key of the tables. */
void config_for_each(const struct option_table *tables,
		     void (*each)(const struct option *o, void *context), void *context);

#endif
