// SPDX-License-Identifier: Apache-2.0
/* The DDL that the program carries. See schema.h. */
#include "clickhouse/schema.h"

#include <stdio.h>
#include <string.h>

#include "clickhouse/ddl.h"
#include "clickhouse/sql_files.h"
#include "log.h"

static const char traces_table[] = "otel_traces";

/* Calls `each` for every statement: tables first, then the views on them. */
static int walk(const char *cluster,
		int (*each)(const struct sql_file *file, const char *statement, void *context,
			    struct why *why),
		void *context, struct why *why)
{
	static const char *const folders[] = { "tables/", "views/" };

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		for (const struct sql_file *f = sql_files; f->path; f++) {
			struct ddl ddl;
			int err;

			if (strncmp(f->path, folders[i], strlen(folders[i])) != 0)
				continue;
			err = ddl_make(f->path, f->text, cluster, &ddl, why);
			for (size_t j = 0; !err && j < ARRAY_SIZE(ddl.statements); j++) {
				if (ddl.statements[j])
					err = each(f, ddl.statements[j], context, why);
				if (err)
					ddl_free(&ddl);
			}
			if (err)
				return err;
			ddl_free(&ddl);
		}
	}
	return 0;
}

static int database_statement(const char *database, const char *cluster, char *buf, size_t size,
			      struct why *why)
{
	char name[300];

	*buf = '\0';
	if (!database || !strcmp(database, "default"))
		return 0;
	if (!clickhouse_quote_name(database, name, sizeof(name)))
		return why_fail(why, EINVAL, "clickhouse_database: the name is too long");
	snprintf(buf, size, "CREATE DATABASE IF NOT EXISTS %s%s%s%s", name,
		 cluster ? " ON CLUSTER '" : "", cluster ?: "", cluster ? "'" : "");
	return 0;
}

static int print_one(const struct sql_file *file, const char *statement, void *context,
		     struct why *why)
{
	(void)file, (void)context;
	if (printf("%s;\n\n", statement) < 0)
		return why_fail(why, errno, "cannot write: %s", strerror(errno));
	return 0;
}

int clickhouse_schema_print(const char *database, const char *cluster, struct why *why)
{
	char statement[512];
	int err = database_statement(database, cluster, statement, sizeof(statement), why);

	if (!err && *statement)
		err = print_one(NULL, statement, NULL, why);
	if (!err)
		err = walk(cluster, print_one, NULL, why);
	if (!err && fflush(stdout) != 0)
		err = why_fail(why, errno, "cannot write: %s", strerror(errno));
	return err;
}

struct application {
	struct clickhouse_client *client;
	bool has_traces;
	size_t applied, skipped;
};

static int run_statement(struct clickhouse_client *client, const char *statement, struct why *why)
{
	struct clickhouse_reply reply;

	return clickhouse_query(client, statement, NULL, NULL, NULL, NULL, &reply, why);
}

static int apply_one(const struct sql_file *file, const char *statement, void *context,
		     struct why *why)
{
	struct application *a = context;
	struct why inner = { { 0 } };
	int err;

	if (!a->has_traces && !strncmp(file->path, "views/", 6) &&
	    ddl_mentions(file->text, traces_table)) {
		log_info("%s is left out: there is no table %s yet; run this again when the "
			 "OpenTelemetry collector has made it",
			 file->path, traces_table);
		a->skipped++;
		return 0;
	}
	err = run_statement(a->client, statement, &inner);
	if (err)
		return why_fail(why, -err, "sql/%s: %.400s", file->path, inner.text);
	a->applied++;
	return 0;
}

static int find_traces(struct application *a, struct why *why)
{
	struct clickhouse_reply reply;
	AUTO_FREE char *text = NULL;
	char sql[64];
	int err;

	snprintf(sql, sizeof(sql), "EXISTS TABLE %s", traces_table);
	err = clickhouse_query_text(a->client, sql, "TabSeparated", NULL, &text, NULL, &reply, why);
	if (!err)
		a->has_traces = *text == '1';
	return err;
}

/* The database may not exist yet: this one statement goes to `default`. */
static int make_database(const struct clickhouse_endpoint *endpoint, const char *cluster,
			 struct why *why)
{
	struct clickhouse_endpoint e = *endpoint;
	struct clickhouse_client *client;
	char statement[512];
	int err = database_statement(e.database, cluster, statement, sizeof(statement), why);

	if (err || !*statement)
		return err;
	e.database = NULL;
	err = clickhouse_client_new(&e, &client, why);
	if (err)
		return err;
	err = run_statement(client, statement, why);
	clickhouse_client_free(client);
	return err;
}

static int apply_otel(struct application *a, struct why *why)
{
	int err = 0;

	for (const struct sql_file *f = sql_files; !err && f->path; f++) {
		if (!strncmp(f->path, "otel/", 5))
			err = run_statement(a->client, f->text, why);
	}
	return err;
}

int clickhouse_schema_apply(const struct clickhouse_endpoint *endpoint, const char *cluster,
			    bool with_otel, struct why *why)
{
	struct application a = { 0 };
	int err = make_database(endpoint, cluster, why);

	if (!err)
		err = clickhouse_client_new(endpoint, &a.client, why);
	if (!err && with_otel)
		err = apply_otel(&a, why);
	if (!err)
		err = find_traces(&a, why);
	if (!err)
		err = walk(cluster, apply_one, &a, why);
	if (!err)
		log_info("schema: %zu statements applied, %zu views left out", a.applied,
			 a.skipped);
	clickhouse_client_free(a.client);
	return err;
}
