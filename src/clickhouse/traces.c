// SPDX-License-Identifier: Apache-2.0
/* Forms of the spans' table. See traces.h. */
#include "clickhouse/traces.h"

#include <stdio.h>
#include <string.h>

#include "clickhouse/ddl.h"

static const char default_table[] = "otel_traces", of_table[] = " of ", as_json[] = " as JSON";

/* The table named in a view's comment, behind " of ". A name may have spaces. */
static void remembered(const char *comment, char *buf, size_t size)
{
	const char *at = comment ? strstr(comment, of_table) : NULL;
	const char *name = at ? at + strlen(of_table) : default_table;
	size_t len = strcspn(name, "'\n"), json = strlen(as_json);

	if (len > json && !memcmp(name + len - json, as_json, json))
		len -= json;
	snprintf(buf, size, "%.*s", (int)len, name);
}

void traces_mark(const struct traces_form *form, char *buf, size_t size)
{
	*buf = '\0';
	if (strcmp(form->table, default_table) != 0 || form->json_span || form->json_resource)
		snprintf(buf, size, "%s%s%s", of_table, form->table,
			 form->json_span || form->json_resource ? as_json : "");
}

/* Columns that otel_span reads; `of_attributes`: of a type with keys. */
static const struct {
	const char *name;
	bool of_attributes;
} columns[] = {
	{ "Timestamp", false },		{ "TraceId", false },  { "SpanId", false },
	{ "ParentSpanId", false },	{ "SpanName", false }, { "SpanKind", false },
	{ "ServiceName", false },	{ "Duration", false }, { "SpanAttributes", true },
	{ "ResourceAttributes", true },
};

/* The type of a column in lines "\nNAME\tTYPE"; NULL: there is no such column. */
static const char *type_of(const char *lines, const char *name)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\n%s\t", name);
	at = strstr(lines, key);
	return at ? at + strlen(key) : NULL;
}

static bool is_json(const char *type)
{
	return !strncmp(type, "JSON", 4) || !strncmp(type, "Object('json')", 14);
}

static void inspect(struct traces_form *form, const char *lines)
{
	form->found = strlen(lines) > 1;
	for (size_t i = 0; form->found && i < ARRAY_SIZE(columns); i++) {
		const char *type = type_of(lines, columns[i].name);

		if (type &&
		    (!columns[i].of_attributes || is_json(type) || !strncmp(type, "Map(", 4)))
			continue;
		snprintf(form->lacks, sizeof(form->lacks), "%s%s", columns[i].name,
			 columns[i].of_attributes ? " of type Map or JSON" : "");
		return;
	}
	form->json_span = form->found && is_json(type_of(lines, "SpanAttributes"));
	form->json_resource = form->found && is_json(type_of(lines, "ResourceAttributes"));
}

int traces_find(struct clickhouse_client *client, const char *table, const char *view_comment,
		struct traces_form *ret, struct why *why)
{
	static const char sql[] =
		"SELECT concat('\\n', name, '\\t', type) FROM system.columns "
		"WHERE database = if({db:String} = '', currentDatabase(), {db:String}) "
		"AND table = {table:String}";
	struct traces_form form = { 0 };
	char database[256] = "";
	struct clickhouse_reply reply;
	AUTO_FREE char *text = NULL;
	const char *dot;
	int err;

	if (table && strlen(table) >= sizeof(form.table))
		return why_fail(why, EINVAL, "traces: the name is too long");
	if (table)
		snprintf(form.table, sizeof(form.table), "%s", table);
	else
		remembered(view_comment, form.table, sizeof(form.table));
	dot = strchr(form.table, '.');
	if (dot)
		snprintf(database, sizeof(database), "%.*s", (int)(dot - form.table), form.table);
	err = clickhouse_query_text(
		client, sql, "TabSeparatedRaw",
		(const struct clickhouse_param[]){ { "param_db", database },
						   { "param_table", dot ? dot + 1 : form.table },
						   { 0 } },
		&text, NULL, &reply, why);
	if (err)
		return err;
	inspect(&form, text);
	*ret = form;
	return 0;
}

int traces_of_view(struct clickhouse_client *client, const char *wanted, char ret_table[256],
		   struct why *why)
{
	struct clickhouse_reply reply;
	AUTO_FREE char *comment = NULL;
	int err = clickhouse_query_text(client,
					"SELECT comment FROM system.tables WHERE database = "
					"currentDatabase() AND name = 'otel_span'",
					"TabSeparatedRaw", NULL, &comment, NULL, &reply, why);

	if (err)
		return err;
	comment[strcspn(comment, "\n")] = '\0';
	remembered(comment, ret_table, 256);
	if (!wanted || !*comment || !strcmp(wanted, ret_table))
		return 0;
	return why_fail(
		why, EINVAL,
		"traces: the views read spans from %s, not from %s: `underspan schema --apply "
		"--traces=%s` changes that",
		ret_table, wanted, wanted);
}

bool traces_are_read_by(const char *text)
{
	return ddl_mentions(text, default_table) || ddl_mentions(text, "otel_span") ||
	       ddl_mentions(text, "request_time");
}

/* ---- adapting the view ---- */

static void put_table(FILE *out, const struct traces_form *form)
{
	const char *dot = strchr(form->table, '.');
	char database[256], name[600];

	if (dot) {
		snprintf(database, sizeof(database), "%.*s", (int)(dot - form->table), form->table);
		if (clickhouse_quote_name(database, name, sizeof(name)))
			fprintf(out, "%s.", name);
	}
	if (clickhouse_quote_name(dot ? dot + 1 : form->table, name, sizeof(name)))
		fputs(name, out);
}

/* Attributes['key'] at `at` as a path of a JSON column; returns the rest, NULL: no match. */
static const char *put_json_path(FILE *out, const char *at, const char *column)
{
	size_t n = strlen(column);
	const char *key, *end;

	if (strncmp(at, column, n) != 0 || strncmp(at + n, "['", 2) != 0)
		return NULL;
	key = at + n + 2;
	end = strstr(key, "']");
	if (!end)
		return NULL;
	fprintf(out, "ifNull(toString(%s.`%.*s`), '')", column, (int)(end - key), key);
	return end + 2;
}

/*
 * The view hidden_span has the types of the table: its maps become JSON. Returns the rest, NULL: no
 * match.
 */
static const char *put_json_type(FILE *out, const char *at, const struct traces_form *form)
{
	static const struct {
		const char *from, *to;
		bool of_resource;
	} types[] = {
		{ ") AS ResourceAttributes,", ")::JSON AS ResourceAttributes,", true },
		{ ") AS SpanAttributes,", ")::JSON AS SpanAttributes,", false },
		{ "Array(Map(LowCardinality(String), String))", "Array(JSON)", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if ((types[i].of_resource ? form->json_resource : form->json_span) &&
		    !strncmp(at, types[i].from, strlen(types[i].from))) {
			fputs(types[i].to, out);
			return at + strlen(types[i].from);
		}
	}
	return NULL;
}

char *traces_view(const char *text, const struct traces_form *form)
{
	static const char from[] = "FROM otel_traces";
	char *buf = NULL;
	size_t size;
	FILE *out = open_memstream(&buf, &size);

	if (!out)
		return NULL;
	while (*text) {
		const char *next = NULL;

		if (form->json_span)
			next = put_json_path(out, text, "SpanAttributes");
		if (!next && form->json_resource)
			next = put_json_path(out, text, "ResourceAttributes");
		if (!next)
			next = put_json_type(out, text, form);
		if (!next && !strncmp(text, from, strlen(from))) {
			fputs("FROM ", out);
			put_table(out, form);
			next = text + strlen(from);
		}
		if (!next) {
			fputc(*text, out);
			next = text + 1;
		}
		text = next;
	}
	if (fclose(out)) {
		free(buf);
		return NULL;
	}
	return buf;
}
