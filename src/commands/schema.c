// SPDX-License-Identifier: Apache-2.0
/* `underspan schema`: the DDL of sql/, printed, or created with --apply. */
#include <stdio.h>
#include <string.h>

#include "clickhouse/client.h"
#include "clickhouse/ddl.h"
#include "clickhouse/sql_files.h"
#include "clickhouse/target.h"
#include "commands/commands.h"
#include "config.h"
#include "log.h"
#include "util.h"

static const char traces_table[] = "otel_traces";
static char *cluster;
static bool apply;

static const struct option options[] = {
	{ .key = "cluster",
	  .type = OPTION_STRING,
	  .target = &cluster,
	  .arg = "NAME",
	  .help = "for a cluster: replicated local tables, Distributed ones in front" },
	{ .key = "apply",
	  .type = OPTION_BOOL,
	  .target = &apply,
	  .help = "create what is missing instead of printing it" },
};

/* Calls `each` for every statement: tables first, then the views on them. */
static int walk(int (*each)(const struct sql_file *file, const char *statement, void *context,
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

static int database_statement(char *buf, size_t size, struct why *why)
{
	char name[300];
	const char *database = clickhouse_config.clickhouse_database;

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

static int print_all(struct why *why)
{
	char database[512];
	int err = database_statement(database, sizeof(database), why);

	if (!err && *database)
		err = print_one(NULL, database, NULL, why);
	if (!err)
		err = walk(print_one, NULL, why);
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
static int make_database(struct clickhouse_endpoint *e, struct why *why)
{
	char statement[512], *database = e->database;
	struct clickhouse_client *client;
	int err = database_statement(statement, sizeof(statement), why);

	if (err || !*statement)
		return err;
	e->database = NULL;
	err = clickhouse_client_new(e, &client, why);
	e->database = database;
	if (err)
		return err;
	err = run_statement(client, statement, why);
	clickhouse_client_free(client);
	return err;
}

static int apply_all(struct why *why)
{
	struct clickhouse_target target;
	struct application a = { 0 };
	int err = clickhouse_resolve(&clickhouse_config, &target, why);

	if (err)
		return err;
	err = make_database(&target.endpoint, why);
	if (!err)
		err = clickhouse_client_new(&target.endpoint, &a.client, why);
	if (!err)
		err = find_traces(&a, why);
	if (!err)
		err = walk(apply_one, &a, why);
	if (!err)
		log_info("schema: %zu statements applied, %zu views left out", a.applied,
			 a.skipped);
	clickhouse_client_free(a.client);
	clickhouse_release(&target);
	return err;
}

int command_schema(int argc, char **argv)
{
	const struct option_table tables[] = { { options, ARRAY_SIZE(options) },
					       clickhouse_options,
					       { 0 } };
	struct why why = { { 0 } };
	int err = config_parse(tables, argc, argv, NULL, NULL, &why);

	if (err == 1) {
		puts("usage: underspan schema [--cluster=NAME] [--apply (--clickhouse=URL | "
		     "--store=DIR)]\n");
		config_print_help(tables);
		return EXIT_DONE;
	}
	if (!err)
		err = apply ? apply_all(&why) : print_all(&why);
	if (err)
		log_error("%s", why.text);
	config_free(tables);
	return err == -EINVAL ? EXIT_USAGE : err ? EXIT_FAILED : EXIT_DONE;
}
