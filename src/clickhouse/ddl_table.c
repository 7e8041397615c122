// SPDX-License-Identifier: Apache-2.0
/* Tables of sql/ compared with tables of a database. See ddl_table.h. */
#include "clickhouse/ddl_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 256, TYPE_MAX = 512, DEDUPLICATION_SECONDS = 604800 };

void ddl_table_free(struct ddl_table *t)
{
	for (size_t i = 0; i < t->n_columns; i++) {
		free(t->columns[i].name);
		free(t->columns[i].type);
		free(t->columns[i].definition);
	}
	free(t->columns);
	free(t->name);
	*t = (struct ddl_table){ 0 };
}

/* "pid UInt32 CODEC(Delta, ZSTD)" */
static int parse_column(const char *line, size_t len, struct ddl_column *ret)
{
	static const char *const ends[] = { " CODEC(", " DEFAULT ", " ALIAS ", " MATERIALIZED ",
					    " COMMENT " };
	const char *space = memchr(line, ' ', len);
	size_t name_len, type_len;

	if (!space)
		return -EINVAL;
	name_len = (size_t)(space - line);
	ret->name = strndup(line, name_len);
	ret->definition = strndup(space + 1, len - name_len - 1);
	if (!ret->name || !ret->definition)
		return -ENOMEM;
	type_len = strlen(ret->definition);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		const char *end = strstr(ret->definition, ends[i]);

		if (end && (size_t)(end - ret->definition) < type_len)
			type_len = (size_t)(end - ret->definition);
	}
	ret->alias = strstr(ret->definition, " ALIAS ") != NULL;
	ret->type = strndup(ret->definition, type_len);
	return ret->type ? 0 : -ENOMEM;
}

static int parse_columns(const char *at, struct ddl_table *t)
{
	t->columns = calloc(COLUMNS_MAX, sizeof(*t->columns));
	if (!t->columns)
		return -ENOMEM;
	while (*at && *at != ')') {
		size_t len = strcspn(at, "\n"), used = len;
		int err;

		if (!strncmp(at, "    ", 4) && strncmp(at, "    --", 6) != 0 &&
		    strncmp(at, "    INDEX ", 10) != 0) {
			used -= at[len - 1] == ',';
			if (t->n_columns == COLUMNS_MAX)
				return -E2BIG;
			err = parse_column(at + 4, used - 4, &t->columns[t->n_columns++]);
			if (err)
				return err;
		}
		at += len + (at[len] == '\n');
	}
	return *at == ')' && t->n_columns ? 0 : -EINVAL;
}

int ddl_table_parse(const char *file, const char *text, struct ddl_table *ret, struct why *why)
{
	static const char create[] = "CREATE TABLE IF NOT EXISTS ";
	const char *at = !strncmp(text, create, sizeof(create) - 1) ? text : NULL;
	struct ddl_table t = { 0 };
	int err = -EINVAL;

	if (!at) {
		at = strstr(text, "\nCREATE TABLE IF NOT EXISTS ");
		at = at ? at + 1 : NULL;
	}
	if (at) {
		at += sizeof(create) - 1;
		t.name = strndup(at, strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_"));
		at = strstr(at, "\n(\n");
		err = !t.name ? -ENOMEM : at ? parse_columns(at + 3, &t) : -EINVAL;
	}
	if (err) {
		ddl_table_free(&t);
		return err == -ENOMEM
			       ? why_fail(why, ENOMEM, "out of memory")
			       : why_fail(why, EINVAL,
					  "sql/%s: no CREATE TABLE with a column a line", file);
	}
	*ret = t;
	return 0;
}

/* ---- types ---- */

/* Removes spaces and backquotes, which differ between server versions. */
static void squeeze(const char *type, char ret[TYPE_MAX])
{
	size_t n = 0;

	for (; *type && n < TYPE_MAX - 1; type++) {
		if (!isspace((unsigned char)*type) && *type != '`')
			ret[n++] = *type;
	}
	ret[n] = '\0';
}

static bool same_type(const char *a, const char *b)
{
	char x[TYPE_MAX], y[TYPE_MAX];

	squeeze(a, x);
	squeeze(b, y);
	return !strcmp(x, y);
}

/* "UInt32" -> 'U' and 32; 0: not a number */
static char number_family(const char *type, unsigned int *ret_bits)
{
	static const struct {
		const char *name;
		char family;
	} families[] = { { "UInt", 'U' }, { "Int", 'I' }, { "Float", 'F' } };

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		size_t n = strlen(families[i].name);
		char *end;

		if (strncmp(type, families[i].name, n) != 0)
			continue;
		*ret_bits = (unsigned int)strtoul(type + n, &end, 10);
		return *end ? 0 : families[i].family;
	}
	return 0;
}

static bool low_cardinality_of(const char *wrapped, const char *type)
{
	char text[TYPE_MAX];

	snprintf(text, sizeof(text), "LowCardinality(%s)", type);
	return same_type(wrapped, text);
}

static bool nullable_of(const char *wrapped, const char *type)
{
	char text[TYPE_MAX];

	snprintf(text, sizeof(text), "Nullable(%s)", type);
	return same_type(wrapped, text);
}

/* Whether `to` represents every value of `from`. */
static bool is_wider(const char *to, const char *from)
{
	unsigned int to_bits = 0, from_bits = 0;
	char family = number_family(from, &from_bits);

	if (family && family == number_family(to, &to_bits))
		return to_bits > from_bits;
	return low_cardinality_of(to, from) || low_cardinality_of(from, to) ||
	       nullable_of(to, from);
}

/* ---- settings ---- */

/* Other engines (Null, Buffer, views) are the operator's: their targets are unknown here. */
static bool is_merge_tree(const char *engine)
{
	static const char suffix[] = "MergeTree";
	size_t len = strlen(engine), n = sizeof(suffix) - 1;

	return len >= n && !strcmp(engine + len - n, suffix);
}

bool ddl_engine_is_replicated(const char *engine)
{
	return !strncmp(engine, "Replicated", 10) || !strncmp(engine, "Shared", 6);
}

bool ddl_setting(const char *engine_full, const char *name, uint64_t *ret)
{
	size_t n = strlen(name);

	for (const char *at = strstr(engine_full, name); at; at = strstr(at + 1, name)) {
		const char *value = at + n;

		/* must be a whole word */
		if (at == engine_full || at[-1] != ' ')
			continue;
		value += strspn(value, " ");
		if (*value != '=')
			continue;
		value += 1 + strspn(value + 1, " '");
		if (!isdigit((unsigned char)*value))
			continue;
		*ret = strtoull(value, NULL, 10);
		return true;
	}
	return false;
}

/* ---- comparison ---- */

struct comparison {
	const struct live_table *live;
	char on_cluster[160];
	bool distributed, changeable; /* by ALTER */
	ddl_on_difference on_difference;
	void *context;
};

static int differs(const struct comparison *c, const char *what, const char *statement)
{
	return c->on_difference(what, statement, c->context);
}

static const struct live_column *find_live(const struct live_table *live, const char *name)
{
	for (size_t i = 0; i < live->n_columns; i++) {
		if (!strcmp(live->columns[i].name, name))
			return &live->columns[i];
	}
	return NULL;
}

/* A Distributed table stores no data: no codec. */
static char *definition_for(const struct comparison *c, const struct ddl_column *column)
{
	char *copy = strdup(column->definition), *codec;

	codec = copy && c->distributed ? strstr(copy, " CODEC(") : NULL;
	if (codec)
		*codec = '\0';
	return copy;
}

static int add_column(const struct comparison *c, const struct ddl_table *wanted, size_t i)
{
	const struct ddl_column *column = &wanted->columns[i];
	AUTO_FREE char *definition = definition_for(c, column);
	AUTO_FREE char *what = NULL, *statement = NULL;

	if (!definition ||
	    asprintf(&what, "%s has no column %s%s%s%s", c->live->name, column->name,
		     c->changeable ? "" : ", and --apply leaves a table of engine ",
		     c->changeable ? "" : c->live->engine,
		     c->changeable ? "" : " unchanged: rows are sent without the column") < 0)
		return -ENOMEM;
	if (!c->changeable)
		return differs(c, what, NULL);
	if (asprintf(&statement, "ALTER TABLE %s%s ADD COLUMN IF NOT EXISTS `%s` %s %s%s%s",
		     c->live->name, c->on_cluster, column->name, definition,
		     i ? "AFTER `" : "FIRST", i ? wanted->columns[i - 1].name : "",
		     i ? "`" : "") < 0) {
		statement = NULL;
		return -ENOMEM;
	}
	return differs(c, what, statement);
}

static int compare_column(const struct comparison *c, const struct ddl_column *column,
			  const struct live_column *live)
{
	AUTO_FREE char *what = NULL, *statement = NULL;
	bool is_alias = !strcmp(live->kind, "ALIAS");
	bool can = c->changeable && !live->is_key && is_wider(column->type, live->type);

	if (column->alias && is_alias)
		return 0;
	if (is_alias || !strcmp(live->kind, "MATERIALIZED") || column->alias) {
		if (asprintf(&what,
			     "%s: %s is %s in the database: rows are sent without the column; "
			     "drop the column, and --apply creates a new column",
			     c->live->name, column->name, *live->kind ? live->kind : "stored") < 0)
			return -ENOMEM;
		return differs(c, what, NULL);
	}
	if (same_type(column->type, live->type) || is_wider(live->type, column->type))
		return 0;
	if (asprintf(&what, "%s: %s is %s in the database and not %s%s", c->live->name,
		     column->name, live->type, column->type,
		     can ? ""
			 : ": no statement can change this safely; rename the table (RENAME "
			   "TABLE), and --apply creates a new table") < 0)
		return -ENOMEM;
	if (can && asprintf(&statement, "ALTER TABLE %s%s MODIFY COLUMN `%s` %s", c->live->name,
			    c->on_cluster, column->name, column->type) < 0) {
		statement = NULL;
		return -ENOMEM;
	}
	return differs(c, what, statement);
}

static int compare_setting(const struct comparison *c, const char *name, uint64_t wanted)
{
	AUTO_FREE char *what = NULL, *statement = NULL;
	uint64_t value = 0;
	bool there = ddl_setting(c->live->engine_full, name, &value);

	if (there && value >= wanted)
		return 0;
	if (asprintf(&what, "%s: %s is %s%llu, and %llu is needed", c->live->name, name,
		     there ? "" : "not set, ", (unsigned long long)value,
		     (unsigned long long)wanted) < 0)
		return -ENOMEM;
	if (asprintf(&statement, "ALTER TABLE %s%s MODIFY SETTING %s = %llu", c->live->name,
		     c->on_cluster, name, (unsigned long long)wanted) < 0) {
		statement = NULL;
		return -ENOMEM;
	}
	return differs(c, what, statement);
}

/*
 * Deduplication windows. Servers before 26.2 have a separate setting for asynchronous INSERTs,
 * unused by newer servers and unknown to very old servers.
 */
static int compare_settings(const struct comparison *c, uint64_t window)
{
	static const char for_async[] = "replicated_deduplication_window_for_async_inserts";
	uint64_t value;
	int err;

	if (!is_merge_tree(c->live->engine))
		return 0;
	if (!ddl_engine_is_replicated(c->live->engine))
		return compare_setting(c, "non_replicated_deduplication_window", window);
	err = compare_setting(c, "replicated_deduplication_window", window);
	if (!err)
		err = compare_setting(c, "replicated_deduplication_window_seconds",
				      DEDUPLICATION_SECONDS);
	if (!err && ddl_setting(c->live->engine_full, for_async, &value))
		err = compare_setting(c, for_async, window);
	return err;
}

int ddl_table_compare(const struct ddl_table *wanted, const struct live_table *live,
		      const char *cluster, uint64_t window, ddl_on_difference on_difference,
		      void *context)
{
	struct comparison c = { .live = live,
				.distributed = !strcmp(live->engine, "Distributed"),
				.on_difference = on_difference,
				.context = context };
	int err = 0;

	c.changeable = c.distributed || is_merge_tree(live->engine);
	if (cluster)
		snprintf(c.on_cluster, sizeof(c.on_cluster), " ON CLUSTER '%s'", cluster);
	for (size_t i = 0; !err && i < wanted->n_columns; i++) {
		const struct live_column *column = find_live(live, wanted->columns[i].name);

		err = column ? compare_column(&c, &wanted->columns[i], column)
			     : add_column(&c, wanted, i);
	}
	return err ? err : compare_settings(&c, window);
}
