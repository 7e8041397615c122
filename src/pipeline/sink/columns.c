// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of another version than the agent. See columns.h. system.columns lists a table's columns;
 * without the right to read them, the exceptions of failed INSERTs name the columns.
 */
#include "pipeline/sink/columns.h"

#include <string.h>

#include "clickhouse/exceptions.h"
#include "base/log.h"
#include "base/clock.h"
#include "base/util.h"

enum { TABLES_MAX = 128, MISSING_MAX = 64, NAME_MAX_ = 96 };

/* Interval of checks for missing columns: an ALTER may have added them. */
static const uint64_t ASK_NS = 15 * NSEC_PER_SEC;

struct known_table {
	char name[NAME_MAX_];
	char missing[MISSING_MAX][NAME_MAX_];
	size_t n_missing;
	uint64_t ask_at_ns;
	char reported[256]; /* the names as last logged */
};

struct known_columns {
	struct known_table *tables[TABLES_MAX];
	size_t n;
};

struct known_columns *known_columns_new(void)
{
	return calloc(1, sizeof(struct known_columns));
}

void known_columns_free(struct known_columns *known)
{
	for (size_t i = 0; known && i < known->n; i++)
		free(known->tables[i]);
	free(known);
}

/* ---- "INSERT INTO table (a, b) FORMAT JSONEachRow" ---- */

struct insert_parts {
	const char *table, *list, *rest; /* list: after '('; rest: from ')' on */
	size_t table_len;
};

static bool take_apart(const char *insert, struct insert_parts *ret)
{
	static const char into[] = "INSERT INTO ";
	const char *open = strchr(insert, '(');

	if (strncmp(insert, into, sizeof(into) - 1) != 0 || !open)
		return false;
	ret->table = insert + sizeof(into) - 1;
	ret->table_len = strcspn(ret->table, " (");
	ret->list = open + 1;
	ret->rest = strchr(open, ')');
	return ret->rest && ret->table_len && ret->table_len < NAME_MAX_;
}

/* The next name of the list; false: end of the list. */
static bool next_name(const struct insert_parts *parts, const char **at, const char **ret_name,
		      size_t *ret_len)
{
	*at += strspn(*at, ", ");
	if (*at >= parts->rest)
		return false;
	*ret_name = *at;
	*ret_len = strcspn(*at, ", )");
	*at += *ret_len;
	return *ret_len > 0;
}

static struct known_table *find_table(struct known_columns *known, const struct insert_parts *parts,
				      bool make)
{
	struct known_table *t;

	for (size_t i = 0; i < known->n; i++) {
		t = known->tables[i];
		if (strlen(t->name) == parts->table_len &&
		    !memcmp(t->name, parts->table, parts->table_len))
			return t;
	}
	t = make && known->n < TABLES_MAX ? calloc(1, sizeof(*t)) : NULL;
	if (t) {
		memcpy(t->name, parts->table, parts->table_len);
		known->tables[known->n++] = t;
	}
	return t;
}

static bool is_missing(const struct known_table *t, const char *name, size_t len)
{
	for (size_t i = 0; i < t->n_missing; i++) {
		if (strlen(t->missing[i]) == len && !memcmp(t->missing[i], name, len))
			return true;
	}
	return false;
}

static bool is_in_list(const struct insert_parts *parts, const char *name, size_t len)
{
	const char *at = parts->list, *other;
	size_t other_len;

	while (next_name(parts, &at, &other, &other_len)) {
		if (other_len == len && !memcmp(other, name, len))
			return true;
	}
	return false;
}

/* False: already known, or no room. */
static bool add_missing(struct known_table *t, const char *name, size_t len)
{
	if (is_missing(t, name, len) || t->n_missing == MISSING_MAX || len >= NAME_MAX_)
		return false;
	memcpy(t->missing[t->n_missing], name, len);
	t->missing[t->n_missing++][len] = '\0';
	return true;
}

/* ---- asking ---- */

enum columns_answer { COLUMNS_READ, COLUMNS_UNKNOWN, NO_ANSWER };

/* Lines of names. COLUMNS_UNKNOWN: missing rights; NO_ANSWER: connection failed. */
static enum columns_answer ask_columns(struct clickhouse_client *client,
				       const struct known_table *t, char **ret_names)
{
	static const char sql[] =
		"SELECT name FROM system.columns WHERE database = currentDatabase() AND "
		"table = {t:String} AND default_kind NOT IN ('ALIAS', 'MATERIALIZED')";
	const struct clickhouse_param params[] = { { "param_t", t->name }, { 0 } };
	struct clickhouse_reply reply = { 0 };
	struct why why;

	if (clickhouse_query_text(client, sql, "TabSeparated", params, ret_names, NULL, &reply,
				  &why))
		return reply.exception_code ? COLUMNS_UNKNOWN : NO_ANSWER;
	if (**ret_names)
		return COLUMNS_READ;
	free(*ret_names);
	*ret_names = NULL;
	return COLUMNS_UNKNOWN;
}

static bool has_line(const char *names, const char *name, size_t len)
{
	for (const char *at = names; at && *at;
	     at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		if (strcspn(at, "\n") == len && !memcmp(at, name, len))
			return true;
	}
	return false;
}

/* Finds columns of the list that the table lacks, as far as the server tells. */
static void check_table(struct clickhouse_client *client, struct known_table *t,
			const struct insert_parts *parts, bool forget)
{
	const char *at = parts->list, *name;
	AUTO_FREE char *names = NULL;
	size_t len;
	enum columns_answer answer = ask_columns(client, t, &names);

	t->ask_at_ns = clock_monotonic_ns() + ASK_NS;
	/* without an answer the columns may exist now: the next INSERT shows */
	if (forget && answer != NO_ANSWER)
		t->n_missing = 0;
	while (answer == COLUMNS_READ && next_name(parts, &at, &name, &len)) {
		if (!has_line(names, name, len))
			add_missing(t, name, len);
	}
}

/* Logs omitted columns; the known columns hold until an INSERT fails. */
static void warn_missing(struct known_table *t)
{
	char list[sizeof(t->reported)] = "";
	size_t n = 0;

	if (!t->n_missing)
		return;

	for (size_t i = 0; i < t->n_missing && n < sizeof(list) - 1; i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "",
				      t->missing[i]);
	if (!strcmp(list, t->reported))
		return;
	log_warn("%s: the database's table lacks %zu column%s, rows are sent without: %s (add "
		 "with `underspan schema --apply`)",
		 t->name, t->n_missing, plural(t->n_missing), list);
	memcpy(t->reported, list, sizeof(list));
}

/* ---- the statement ---- */

static int without_missing(const struct known_table *t, const char *insert,
			   const struct insert_parts *parts, char **ret, size_t *ret_left_out)
{
	/* a given list may separate names by one character; the result uses two */
	char *out = malloc(2 * strlen(insert) + 1);
	size_t n = (size_t)(parts->list - insert), kept = 0, len;
	const char *at = parts->list, *name;

	if (!out)
		return -ENOMEM;
	memcpy(out, insert, n);
	*ret_left_out = 0;
	while (next_name(parts, &at, &name, &len)) {
		if (is_missing(t, name, len)) {
			++*ret_left_out;
			continue;
		}
		n += (size_t)sprintf(out + n, "%s%.*s", kept++ ? ", " : "", (int)len, name);
	}
	strcpy(out + n, parts->rest);
	if (*ret_left_out && kept) {
		*ret = out;
		return 0;
	}
	/* no column is omitted; or all would be, and the server's error explains why */
	*ret_left_out = 0;
	free(out);
	return 0;
}

int known_columns_statement(struct known_columns *known, struct clickhouse_client *client,
			    const char *insert, char **ret_insert, size_t *ret_left_out)
{
	struct insert_parts parts;
	struct known_table *t = take_apart(insert, &parts) ? find_table(known, &parts, false)
							   : NULL;

	*ret_insert = NULL;
	*ret_left_out = 0;
	if (!t || !t->n_missing)
		return 0;
	if (clock_monotonic_ns() >= t->ask_at_ns)
		check_table(client, t, &parts, true);
	return without_missing(t, insert, &parts, ret_insert, ret_left_out);
}

void known_columns_taken(struct known_columns *known, const char *insert)
{
	struct insert_parts parts;
	struct known_table *t = take_apart(insert, &parts) ? find_table(known, &parts, false)
							   : NULL;

	if (!t || !*t->reported)
		return;
	warn_missing(t);
	if (t->n_missing)
		return;
	log_info("%s: all columns are sent again", t->name);
	t->reported[0] = '\0';
}

/* "... No such column NAME in table ...", "... Cannot insert column NAME, because ..." */
static bool named_column(const char *message, const char **ret_name, size_t *ret_len)
{
	static const char *const before[] = { "No such column ", "Cannot insert column " };

	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		const char *at = strstr(message, before[i]);

		if (!at)
			continue;
		at += strlen(before[i]);
		at += *at == '`' || *at == '\'';
		*ret_name = at;
		*ret_len = strcspn(at, " ,`'");
		return *ret_len > 0;
	}
	return false;
}

bool known_columns_learn(struct known_columns *known, struct clickhouse_client *client,
			 const char *insert, const struct clickhouse_reply *reply)
{
	struct insert_parts parts;
	struct known_table *t;
	const char *name;
	size_t before, len;

	if ((reply->exception_code != EXCEPTION_NO_SUCH_COLUMN_IN_TABLE &&
	     reply->exception_code != EXCEPTION_ILLEGAL_COLUMN) ||
	    !take_apart(insert, &parts) || !named_column(reply->message, &name, &len) ||
	    !is_in_list(&parts, name, len))
		return false;
	t = find_table(known, &parts, true);
	if (!t)
		return false;
	before = t->n_missing;
	if (clock_monotonic_ns() >= t->ask_at_ns)
		check_table(client, t, &parts, false);
	/* independent of the known columns: another server or shard may have answered */
	add_missing(t, name, len);
	warn_missing(t);
	return t->n_missing > before;
}
