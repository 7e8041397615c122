// SPDX-License-Identifier: Apache-2.0
/* Reads the existing schema. See live_schema.h. */
#include "clickhouse/live_schema.h"

#include <jansson.h>
#include <string.h>

#include "clickhouse/exceptions.h"
#include "clickhouse/own_names.h"
#include "clickhouse/rows.h"

static const char objects_sql[] =
	"SELECT name, engine, engine_full, comment, if(engine = 'View', create_table_query, '') "
	"FROM system.tables WHERE database = currentDatabase() AND NOT is_temporary ORDER BY name";
/* columns grouped by table, in order */
static const char columns_sql[] =
	"SELECT table, name, type, default_kind, "
	"toUInt8(is_in_partition_key OR is_in_sorting_key OR is_in_primary_key) "
	"FROM system.columns WHERE database = currentDatabase() AND startsWith(table, 'ebpf_') "
	"ORDER BY table, position";

/* Rows of an answer: an array of arrays, to be released by the caller. */
static int ask(struct clickhouse_client *client, const char *sql, json_t **ret_rows,
	       struct why *why)
{
	struct clickhouse_reply reply;
	int err = clickhouse_query_rows(client, sql, "JSONCompact", NULL, ret_rows, &reply, why);

	if (err && reply.exception_code == EXCEPTION_UNKNOWN_DATABASE)
		return why_fail(why, ENOENT,
				"there is no such database: `underspan schema --apply` creates it");
	return err;
}

static const char *text_at(const json_t *row, size_t i)
{
	const char *s = json_string_value(json_array_get(row, i));

	return s ? s : "";
}

/* A UInt64 may be quoted, depending on a setting. */
static uint64_t number_at(const json_t *row, size_t i)
{
	const json_t *value = json_array_get(row, i);

	return json_is_string(value) ? strtoull(json_string_value(value), NULL, 10)
				     : (uint64_t)json_integer_value(value);
}

static uint64_t ask_number(struct clickhouse_client *client, const char *sql, int *ret_err,
			   struct why *why)
{
	json_t *rows = NULL;
	uint64_t value = 0;

	*ret_err = ask(client, sql, &rows, why);
	if (!*ret_err) {
		value = number_at(json_array_get(rows, 0), 0);
		json_decref(rows);
	}
	return value;
}

static int fill_objects(struct live_schema *live, const char *prefix, const json_t *rows)
{
	size_t n = json_array_size(rows);

	live->objects = calloc(n + 1, sizeof(*live->objects));
	if (!live->objects)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, i);
		const char *name = own_names_take(text_at(row, 0), prefix);

		if (!name)
			continue;
		live->objects[live->n_objects++] =
			(struct live_object){ .name = name,
					      .engine = text_at(row, 1),
					      .engine_full = text_at(row, 2),
					      .comment = text_at(row, 3),
					      .definition = text_at(row, 4) };
	}
	return 0;
}

static int fill_columns(struct live_schema *live, const char *prefix, const json_t *rows)
{
	size_t n = json_array_size(rows);

	live->columns = calloc(n + 1, sizeof(*live->columns));
	live->column_tables = calloc(n + 1, sizeof(*live->column_tables));
	if (!live->columns || !live->column_tables)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, i);
		const char *table = own_names_take(text_at(row, 0), prefix);

		if (!table)
			continue;
		live->column_tables[live->n_columns] = table;
		live->columns[live->n_columns++] =
			(struct live_column){ .name = text_at(row, 1),
					      .type = text_at(row, 2),
					      .kind = text_at(row, 3),
					      .is_key = number_at(row, 4) != 0 };
	}
	return 0;
}

/* Both JSON arrays are kept: they own all strings. */
static int read_lists(struct clickhouse_client *client, struct live_schema *live, struct why *why)
{
	const char *prefix = clickhouse_client_table_prefix(client);
	json_t *objects = NULL, *columns = NULL;
	int err = ask(client, objects_sql, &objects, why);

	if (!err)
		err = ask(client, columns_sql, &columns, why);
	if (!err) {
		live->memory = json_pack("[oo]", objects, columns);
		if (!live->memory)
			return why_fail(why, ENOMEM, "out of memory");
		if (fill_objects(live, prefix, objects) || fill_columns(live, prefix, columns))
			err = why_fail(why, ENOMEM, "out of memory");
		return err;
	}
	json_decref(objects);
	return err;
}

static const struct live_column *find_column(const struct live_table *table, const char *name)
{
	for (size_t i = 0; i < table->n_columns; i++) {
		if (!strcmp(table->columns[i].name, name))
			return &table->columns[i];
	}
	return NULL;
}

/* Somebody else's table of this name: no version can be read, none written. */
static int check_versions(const struct live_schema *live, const struct live_object *object,
			  struct why *why)
{
	const struct live_table table = live_schema_table(live, object);
	const struct live_column *version = find_column(&table, "version");

	if (strcmp(object->engine, "View") != 0 && version && strstr(version->type, "Int") &&
	    find_column(&table, "applied_at") && find_column(&table, "applied_by"))
		return 0;
	return why_fail(why, EBADMSG,
			"schema: the %s ebpf_schema in the database is not underspan's, which has "
			"the columns version, applied_at and applied_by: rename it, and `underspan "
			"schema --apply` creates underspan's; or give underspan a database of its "
			"own by clickhouse_database",
			!strcmp(object->engine, "View") ? "view" : "table");
}

static int read_version(struct clickhouse_client *client, struct live_schema *live, struct why *why)
{
	const struct live_object *object = live_schema_find(live, "ebpf_schema");
	int err = object ? check_versions(live, object, why) : 0;

	if (object && !err)
		live->version = ask_number(client, "SELECT max(version) FROM ebpf_schema", &err,
					   why);
	return err;
}

int live_schema_read(struct clickhouse_client *client, const char *traces, struct live_schema *ret,
		     struct why *why)
{
	const struct live_object *view;
	struct live_schema live = { 0 };
	int ignored, err = read_lists(client, &live, why);

	if (!err)
		err = read_version(client, &live, why);
	view = live_schema_find(&live, "otel_span");
	if (!err)
		err = traces_find(client, traces, view ? view->comment : NULL, &live.traces, why);
	/* only for advice: missing rights are not an error */
	if (!err && live_schema_find(&live, "ebpf_agent"))
		live.agents = ask_number(client,
					 "SELECT uniq(host) FROM ebpf_agent WHERE start_time > "
					 "now64(6) - INTERVAL 10 MINUTE",
					 &ignored, NULL);
	if (err)
		live_schema_free(&live);
	else
		*ret = live;
	return err;
}

void live_schema_free(struct live_schema *live)
{
	free(live->objects);
	free(live->columns);
	free(live->column_tables);
	json_decref(live->memory);
	*live = (struct live_schema){ 0 };
}

const struct live_object *live_schema_find(const struct live_schema *live, const char *name)
{
	for (size_t i = 0; i < live->n_objects; i++) {
		if (!strcmp(live->objects[i].name, name))
			return &live->objects[i];
	}
	return NULL;
}

struct live_table live_schema_table(const struct live_schema *live,
				    const struct live_object *object)
{
	struct live_table table = { .name = object->name,
				    .engine = object->engine,
				    .engine_full = object->engine_full };

	for (size_t i = 0; i < live->n_columns; i++) {
		if (strcmp(live->column_tables[i], object->name) != 0)
			continue;
		if (!table.n_columns++)
			table.columns = &live->columns[i];
	}
	return table;
}
