// SPDX-License-Identifier: Apache-2.0
/* Options by key. See config_search.h. */
#include "base/config_search.h"

#include "base/nearest.h"

/* Dashes of the typed key equal underscores. */
static bool key_equal(const char *key, const char *typed, size_t typed_len)
{
	size_t i;

	for (i = 0; i < typed_len && key[i]; i++) {
		if (key[i] != typed[i] && !(key[i] == '_' && typed[i] == '-'))
			return false;
	}
	return i == typed_len && !key[i];
}

const struct option *config_find_option(const struct option_table *tables, const char *typed,
					size_t len)
{
	for (; tables && tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++) {
			if (key_equal(tables->options[i].key, typed, len))
				return &tables->options[i];
		}
	}
	return NULL;
}

void config_for_each(const struct option_table *tables,
		     void (*each)(const struct option *o, void *context), void *context)
{
	for (; tables && tables->options; tables++) {
		for (size_t i = 0; i < tables->n; i++)
			each(&tables->options[i], context);
	}
}

static void try_key(const struct option *o, void *nearest)
{
	if (o->help) /* options without help are internal */
		nearest_try(nearest, o->key);
}

char *config_hint(const struct option_table *tables, const char *typed, size_t len,
		  const char *prefix, const char *otherwise, char *buf, size_t size)
{
	struct nearest nearest;

	nearest_begin(&nearest, typed, len);
	config_for_each(tables, try_key, &nearest);
	return nearest_hint(&nearest, prefix, otherwise, buf, size);
}
