// SPDX-License-Identifier: Apache-2.0
/* The embedded DDL. See schema.h. */
#include "clickhouse/schema.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clickhouse/exceptions.h"
#include "clickhouse/kept_places.h"
#include "clickhouse/own_names.h"
#include "clickhouse/ddl.h"
#include "clickhouse/sql_files.h"
#include "clickhouse/upgrade.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

/* Calls `each` for every statement: tables, then views, of these spans. NULL: of otel_traces. */
static int walk(const char *cluster, const struct traces_form *traces,
		int (*each)(const struct sql_file *file, const char *statement, void *context,
			    struct why *why),
		void *context, struct why *why)
{
	static const char *const folders[] = { "tables/", "views/" };

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		for (const struct sql_file *f = sql_files; f->path; f++) {
			AUTO_FREE char *text = NULL;
			struct ddl ddl;
			int err;

			if (strncmp(f->path, folders[i], strlen(folders[i])) != 0)
				continue;
			text = traces ? traces_view(f->text, traces) : strdup(f->text);
			if (!text)
				return why_fail(why, ENOMEM, "out of memory");
			err = ddl_make(f->path, text, cluster, &ddl, why);
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
	if (ddl_check_cluster(cluster, why))
		return -EINVAL;
	if (!database || !strcmp(database, "default"))
		return 0;
	if (!clickhouse_quote_name(database, name, sizeof(name)))
		return why_fail(why, EINVAL, "clickhouse_database: the name is too long");
	snprintf(buf, size, "CREATE DATABASE IF NOT EXISTS %s%s%s%s", name,
		 cluster ? " ON CLUSTER '" : "", cluster ?: "", cluster ? "'" : "");
	return 0;
}

/* Names and texts of the database are in it: printable on a terminal, unchanged into a pipe. */
static int print_statement(const char *statement, const char *prefix, const char *end)
{
	AUTO_FREE char *named = own_names_put(statement, prefix);
	struct terminal_text text = { { 0 } };

	if (!named)
		return -ENOMEM;
	if (isatty(STDOUT_FILENO))
		terminal_text_print(&text, named, strlen(named), stdout);
	else
		fputs(named, stdout);
	return fputs(end, stdout) == EOF ? -(errno ?: EIO) : 0;
}

static int print_one(const struct sql_file *file, const char *statement, void *context,
		     struct why *why)
{
	(void)file;
	if (print_statement(statement, context, ";\n\n"))
		return why_fail(why, errno, "cannot write: %s", strerror(errno));
	return 0;
}

static int print_database(const char *database, const char *cluster, struct why *why)
{
	char statement[512], name[300];
	int err = database_statement(database, cluster, statement, sizeof(statement), why);

	if (err || !*statement)
		return err;
	err = print_one(NULL, statement, NULL, why);
	if (err || !clickhouse_quote_name(database, name, sizeof(name)))
		return err;
	/* the statements name tables without a database */
	snprintf(statement, sizeof(statement), "USE %s", name);
	return print_one(NULL, statement, NULL, why);
}

int clickhouse_schema_print(const char *database, const char *cluster, const char *traces,
			    const char *prefix, struct why *why)
{
	struct traces_form form = { .found = true };
	int err = print_database(database, cluster, why);

	if (!err && traces &&
	    snprintf(form.table, sizeof(form.table), "%s", traces) >= (int)sizeof(form.table))
		err = why_fail(why, EINVAL, "traces: the name is too long");
	if (!err) {
		AUTO_FREE char *table = upgrade_schema_table(cluster);

		err = table ? print_one(NULL, table, (void *)prefix, why)
			    : why_fail(why, ENOMEM, "out of memory");
	}
	if (!err)
		err = walk(cluster, traces ? &form : NULL, print_one, (void *)prefix, why);
	if (!err && fflush(stdout) != 0)
		err = why_fail(why, errno, "cannot write: %s", strerror(errno));
	return err;
}

static int run_statement(struct clickhouse_client *client, const char *statement,
			 struct clickhouse_reply *reply, struct why *why)
{
	return clickhouse_query(client, statement, NULL, NULL, NULL, NULL, reply, why);
}

/* Sent to database `default`, since the target may not exist. */
static int make_database(const struct clickhouse_endpoint *endpoint, const char *cluster,
			 struct why *why)
{
	struct clickhouse_endpoint e = *endpoint;
	struct clickhouse_client *client;
	struct clickhouse_reply reply;
	char statement[512];
	int err = database_statement(e.database, cluster, statement, sizeof(statement), why);

	if (err || !*statement)
		return err;
	e.database = NULL;
	err = clickhouse_client_new(&e, &client, why);
	if (err)
		return err;
	err = run_statement(client, statement, &reply, why);
	clickhouse_client_free(client);
	return err;
}

static int apply_otel(struct clickhouse_client *client, struct why *why)
{
	struct clickhouse_reply reply;
	int err = 0;

	for (const struct sql_file *f = sql_files; !err && f->path; f++) {
		if (!strncmp(f->path, "otel/", 5))
			err = run_statement(client, f->text, &reply, why);
	}
	return err;
}

/* ---- upgrade ---- */

/* Plans repeatedly until empty: a new table may need further statements. */
enum { ROUNDS_MAX = 8, CLEAN_ROUNDS_MAX = 2 };

struct application {
	struct clickhouse_client *client;
	/* own_store: silent about created tables; continues after failures */
	const struct schema_request *request;
	size_t applied; /* statements */
	struct live_schema live;
	struct upgrade_plan plan;
};

/* The sentences of the plan are of plain names. */
static int name_steps(struct upgrade_plan *plan, const char *prefix)
{
	for (size_t i = 0; prefix && i < plan->n; i++) {
		char *named = own_names_put_sentence(plan->steps[i].what, prefix);

		if (!named)
			return -ENOMEM;
		free(plan->steps[i].what);
		plan->steps[i].what = named;
	}
	return 0;
}

static int make_plan(struct application *a, struct why *why)
{
	int err;

	upgrade_plan_free(&a->plan);
	live_schema_free(&a->live);
	err = live_schema_read(a->client, a->request->traces, &a->live, why);
	err = err
		      ?: upgrade_plan_make(&a->live, a->request->cluster, a->request->agents,
					   &a->plan, why);
	if (!err && name_steps(&a->plan, clickhouse_client_table_prefix(a->client)))
		err = why_fail(why, ENOMEM, "out of memory");
	return err;
}

/* Concurrent upgrade, or a replica that lags: a new plan finds the rest. */
static bool may_pass(const struct clickhouse_reply *reply)
{
	switch (reply->exception_code) {
	case EXCEPTION_TABLE_ALREADY_EXISTS:
	case EXCEPTION_DEADLOCK_AVOIDED:
	case EXCEPTION_CANNOT_ASSIGN_ALTER:
	case EXCEPTION_DATABASE_REPLICATION_FAILED:
	case EXCEPTION_NON_ATOMIC_RENAME: /* of CREATE OR REPLACE */
	/* a column added concurrently: IF NOT EXISTS is checked too early */
	case EXCEPTION_ILLEGAL_COLUMN:
	case EXCEPTION_DUPLICATE_COLUMN:
		return true;
	default:
		return false;
	}
}

/* The first line that is not a comment. */
static const char *first_line(const char *statement)
{
	while (!strncmp(statement, "--", 2) && strchr(statement, '\n'))
		statement = strchr(statement, '\n') + 1;
	return statement;
}

static void tell_step(const struct application *a, const struct upgrade_step *step)
{
	AUTO_FREE char *named = own_names_put(first_line(step->statement),
					      clickhouse_client_table_prefix(a->client));

	if (step->kind == UPGRADE_CREATE && a->request->own_store)
		log_debug("schema: %s: made", step->what);
	else
		log_info("schema: %s: %.*s", step->what, (int)strcspn(named ?: "", "\n("),
			 named ?: "");
}

static int run_step(struct application *a, const struct upgrade_step *step, bool *ret_again,
		    struct why *why)
{
	struct clickhouse_reply reply = { 0 };
	struct why inner = { { 0 } };
	int err = run_statement(a->client, step->statement, &reply, &inner);

	if (!err) {
		tell_step(a, step);
		a->applied++;
		return 0;
	}
	*ret_again = may_pass(&reply);
	/* disk full: rows wait in the spool, the next start finishes the upgrade */
	if (!*ret_again && a->request->own_store && err == -EREMOTEIO) {
		log_warn("schema: %.120s: %.300s", step->what, inner.text);
		return 0;
	}
	return why_fail(why, -err, "schema: %.120s: %.300s", step->what, inner.text);
}

static int run_plan(struct application *a, bool *ret_again, struct why *why)
{
	int err = 0;

	for (size_t i = 0; !err && i < a->plan.n; i++) {
		if (a->plan.steps[i].statement)
			err = run_step(a, &a->plan.steps[i], ret_again, why);
	}
	return err;
}

static void pause_round(int round)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000000L << (round < 4 ? round : 4) }, NULL);
}

static void print_rest(const struct application *a)
{
	for (size_t i = 0; i < a->plan.n; i++) {
		const struct upgrade_step *step = &a->plan.steps[i];

		if (!step->statement)
			log_info("schema: %s", step->what);
	}
}

static int apply_all(struct application *a, struct why *why)
{
	int err = make_plan(a, why), clean = 0;
	uint64_t before = a->live.version;

	if (!err && before > SCHEMA_VERSION) {
		log_warn("schema: the database has version %llu, of a newer underspan; this "
			 "underspan knows version %d: nothing is changed, agents send the "
			 "existing columns",
			 (unsigned long long)before, SCHEMA_VERSION);
		return 0;
	}
	for (int round = 0; !err && a->plan.n_statements && clean < CLEAN_ROUNDS_MAX; round++) {
		bool again = false;

		err = run_plan(a, &again, why);
		clean += !err;
		if (err && again && round < ROUNDS_MAX) {
			pause_round(round);
			err = 0;
		}
		if (!err)
			err = make_plan(a, why);
	}
	if (err)
		return err;
	print_rest(a);
	kept_places_tell(&a->live, clickhouse_client_table_prefix(a->client));
	if (!a->applied)
		log_info("schema: nothing to do: version %d", SCHEMA_VERSION);
	else
		log_info("schema: %zu statement%s applied: version %d", a->applied,
			 plural(a->applied), SCHEMA_VERSION);
	return 0;
}

static void application_free(struct application *a)
{
	upgrade_plan_free(&a->plan);
	live_schema_free(&a->live);
	clickhouse_client_free(a->client);
}

int clickhouse_schema_apply(const struct clickhouse_endpoint *endpoint,
			    const struct schema_request *request, struct why *why)
{
	struct application a = { .request = request };
	int err = make_database(endpoint, request->cluster, why);

	if (!err)
		err = clickhouse_client_new(endpoint, &a.client, why);
	if (!err && request->own_store)
		err = apply_otel(a.client, why);
	if (!err)
		err = apply_all(&a, why);
	application_free(&a);
	return err;
}

/* ---- check ---- */

static int print_differences(const struct application *a, struct why *why)
{
	for (size_t i = 0; i < a->plan.n; i++) {
		const struct upgrade_step *step = &a->plan.steps[i];

		text_print_line(stdout, "-- %s", step->what); /* one line: a comment */
		if (step->statement)
			print_statement(step->statement, clickhouse_client_table_prefix(a->client),
					";\n");
	}
	if (a->plan.n_statements)
		puts("-- to apply: `underspan schema --apply`");
	return fflush(stdout) ? why_fail(why, errno, "cannot write: %s", strerror(errno)) : 0;
}

/* Reports the time covered by the deduplication windows. */
static void print_window(const struct application *a)
{
	uint64_t agents = a->request->agents ?: a->live.agents;

	if (agents)
		log_info("schema: %llu agent%s %s; the tables' deduplication windows are checked "
			 "against this number",
			 (unsigned long long)agents, plural(agents),
			 a->request->agents
				 ? counted(agents, "is to write here", "are to write here")
				 : "wrote in the last ten minutes");
}

int clickhouse_schema_check(const struct clickhouse_endpoint *endpoint,
			    const struct schema_request *request, bool *ret_same, struct why *why)
{
	struct application a = { .request = request };
	int err = clickhouse_client_new(endpoint, &a.client, why);

	if (!err)
		err = make_plan(&a, why);
	if (!err) {
		print_window(&a);
		kept_places_tell(&a.live, clickhouse_client_table_prefix(a.client));
		*ret_same = !a.plan.n_differences;
		if (*ret_same && a.live.version <= SCHEMA_VERSION)
			log_info("schema: no difference: version %d", SCHEMA_VERSION);
		if (a.live.version > SCHEMA_VERSION)
			printf("-- the database has version %llu, of a newer underspan; this "
			       "underspan knows version %d\n",
			       (unsigned long long)a.live.version, SCHEMA_VERSION);
		else
			err = print_differences(&a, why);
	}
	application_free(&a);
	return err;
}
