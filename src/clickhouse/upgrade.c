// SPDX-License-Identifier: Apache-2.0
/* Upgrade plans. See upgrade.h. */
#include "clickhouse/upgrade.h"

#include <string.h>
#include <zlib.h>

#include "clickhouse/ddl.h"
#include "clickhouse/ddl_places.h"
#include "clickhouse/ddl_table.h"
#include "clickhouse/sql_files.h"
#include "base/version.h"

static const char view_mark[] = "underspan view ", spans_view[] = "otel_span";

/*
 * Minimum deduplication window; with many agents, ten minutes of INSERTs: each agent sends at most
 * one batch per table and flush_interval (5 s), and repeats a batch with a lost answer within a
 * minute.
 */
enum { WINDOW_MIN = 10000, WINDOW_PER_AGENT = 120 };

struct planner {
	const struct live_schema *live;
	char cluster[128]; /* "": single server */
	uint64_t window;
	struct upgrade_plan plan;
};

void upgrade_plan_free(struct upgrade_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++) {
		free(plan->steps[i].what);
		free(plan->steps[i].statement);
	}
	free(plan->steps);
	*plan = (struct upgrade_plan){ 0 };
}

/* Always takes ownership of the statement. */
static int add_step(struct planner *p, enum upgrade_kind kind, char *statement, const char *fmt,
		    ...) PRINTF_LIKE(4, 5);
static int add_step(struct planner *p, enum upgrade_kind kind, char *statement, const char *fmt,
		    ...)
{
	struct upgrade_step *grown = realloc(p->plan.steps,
					     (p->plan.n + 1) * sizeof(*p->plan.steps));
	char *what = NULL;
	va_list ap;
	int n;

	if (grown)
		p->plan.steps = grown;
	va_start(ap, fmt);
	n = vasprintf(&what, fmt, ap);
	va_end(ap);
	if (!grown || n < 0) {
		free(statement);
		free(n < 0 ? NULL : what);
		return -ENOMEM;
	}
	grown[p->plan.n++] = (struct upgrade_step){ kind, what, statement };
	p->plan.n_statements += statement != NULL;
	p->plan.n_differences += kind != UPGRADE_LATER;
	return 0;
}

static const char *cluster_of(const struct planner *p)
{
	return *p->cluster ? p->cluster : NULL;
}

/* ---- tables ---- */

static int on_difference(const char *what, const char *statement, void *context)
{
	char *copy = statement ? strdup(statement) : NULL;

	if (statement && !copy)
		return -ENOMEM;
	return add_step(context, statement ? UPGRADE_CHANGE : UPGRADE_NOTE, copy, "%s", what);
}

static int plan_one_table(struct planner *p, const struct ddl_table *wanted, const char *name,
			  const char *create)
{
	const struct live_object *object = live_schema_find(p->live, name);
	struct live_table live;
	char *copy;
	int err = 0;

	if (object) {
		if (!strcmp(object->engine, "View"))
			err = add_step(p, UPGRADE_NOTE, NULL,
				       "%s is a view in the database, which takes no rows: rename "
				       "the view, and --apply creates the table",
				       name);
		live = live_schema_table(p->live, object);
		return err
			       ?: ddl_table_compare(wanted, &live, cluster_of(p), p->window,
						    on_difference, p);
	}
	copy = strdup(create);
	return copy ? add_step(p, UPGRADE_CREATE, copy, "there is no table %s", name) : -ENOMEM;
}

static int plan_table(struct planner *p, const struct sql_file *file, struct why *why)
{
	struct ddl_table wanted;
	struct ddl ddl;
	char local[160];
	int err = ddl_table_parse(file->path, file->text, &wanted, why);

	if (err)
		return err;
	err = ddl_make(file->path, file->text, cluster_of(p), &ddl, why);
	if (err) {
		ddl_table_free(&wanted);
		return err;
	}
	snprintf(local, sizeof(local), "%s%s", wanted.name, ddl.statements[1] ? "_local" : "");
	err = plan_one_table(p, &wanted, local, ddl.statements[0]);
	if (!err && ddl.statements[1])
		err = plan_one_table(p, &wanted, wanted.name, ddl.statements[1]);
	ddl_free(&ddl);
	ddl_table_free(&wanted);
	return err ? why_fail(why, -err, "out of memory") : 0;
}

char *upgrade_schema_table(const char *cluster)
{
	const struct sql_file *f = sql_files;
	const char *family = ddl_engine_prefix(cluster);
	AUTO_FREE char *path = NULL;
	bool with_path;
	struct ddl ddl;
	char *out = NULL;

	while (strcmp(f->path, "schema/ebpf_schema.sql") != 0)
		f++;
	if (!cluster)
		return ddl_make(f->path, f->text, NULL, &ddl, NULL) ? NULL : ddl.statements[0];
	/* a single set of replicas over all shards: every node has the version */
	path = ddl_path_over_shards("ebpf_schema");
	with_path = !strcmp(family, "Replicated");
	if (!path || asprintf(&out,
			      "CREATE TABLE IF NOT EXISTS ebpf_schema ON CLUSTER '%s'\n"
			      "(\n    version UInt32,\n    applied_at DateTime64(6, 'UTC') DEFAULT "
			      "now64(6),\n    applied_by String\n)\nENGINE = %sMergeTree%s%s%s\n"
			      "ORDER BY version",
			      cluster, family, with_path ? "('" : "", with_path ? path : "",
			      with_path ? "', '{shard}-{replica}')" : "") < 0)
		return NULL;
	return out;
}

/* ---- views ---- */

/* "CREATE VIEW IF NOT EXISTS name AS ..." -> CREATE OR REPLACE with a mark of the text */
static char *replacing(const char *statement, const char *mark)
{
	static const char create[] = "CREATE VIEW IF NOT EXISTS";
	const char *at = strstr(statement, create);
	char *out = NULL;

	if (asprintf(&out, "%.*s%s%s\nCOMMENT '%s'", at ? (int)(at - statement) : 0, statement,
		     at ? "CREATE OR REPLACE VIEW" : "", at ? at + sizeof(create) - 1 : statement,
		     mark) < 0)
		return NULL;
	return out;
}

static bool is_file_name_of(const struct sql_file *file, char *name, size_t size)
{
	const char *base = strrchr(file->path, '/') + 1;
	const char *dot = strrchr(base, '.');

	return dot && snprintf(name, size, "%.*s", (int)(dot - base), base) < (int)size;
}

/* Nothing to do, or a step that says why the object stays: *ret_done is set. */
static int keep_view(struct planner *p, const char *name, const struct live_object *object,
		     const char *mark, bool *ret_done)
{
	*ret_done = true;
	if (!strcmp(object->comment, mark))
		return 0;
	if (strcmp(object->engine, "View") != 0)
		return add_step(p, UPGRADE_NOTE, NULL,
				"%s is not a view in the database: rename the table, and --apply "
				"creates the view",
				name);
	if (p->live->version >= 2 && strncmp(object->comment, view_mark, strlen(view_mark)) != 0)
		return add_step(
			p, UPGRADE_LATER, NULL,
			"the view %s was not made by underspan and is kept: drop the view, and "
			"--apply creates underspan's",
			name);
	*ret_done = false;
	return 0;
}

static int replace_view(struct planner *p, const struct sql_file *file, const char *name,
			const char *text, const char *mark, struct why *why)
{
	const struct live_object *object = live_schema_find(p->live, name);
	struct ddl ddl;
	char *statement;
	int err = ddl_make(file->path, text, cluster_of(p), &ddl, why);

	if (err)
		return err;
	statement = replacing(ddl.statements[0], mark);
	ddl_free(&ddl);
	if (!statement)
		return why_fail(why, ENOMEM, "out of memory");
	if (!object)
		return add_step(p, UPGRADE_CREATE, statement, "there is no view %s", name);
	/* possibly the operator's: replaced, and its text kept */
	if (strncmp(object->comment, view_mark, strlen(view_mark)) != 0)
		return add_step(p, UPGRADE_CHANGE, statement,
				"the view %s is of an older version; the old text: %s", name,
				object->definition);
	return add_step(p, UPGRADE_CHANGE, statement, "the view %s is of another version", name);
}

/*
 * From version 2 on, views have a mark with the checksum of their text. A view without a mark comes
 * from an older version or from the operator.
 */
static int plan_view(struct planner *p, const struct sql_file *file, struct why *why)
{
	const struct live_object *object;
	const struct traces_form *traces = &p->live->traces;
	char name[128], of[300] = "", mark[360];
	AUTO_FREE char *text = NULL;
	bool done = false;
	int err = 0;

	if (!is_file_name_of(file, name, sizeof(name)))
		return why_fail(why, EINVAL, "sql/%s: the file must be named like the view",
				file->path);
	if (!traces->found && traces_are_read_by(file->text))
		return add_step(p, UPGRADE_LATER, NULL,
				"%s is left out: there is no table %s; run --apply again after the "
				"OpenTelemetry collector has created the table",
				name, traces->table);
	if (*traces->lacks && traces_are_read_by(file->text))
		return add_step(p, UPGRADE_NOTE, NULL,
				"%s is left out: the table %s has no column %s, so it is not one "
				"of the OpenTelemetry collector's exporter; name that one by "
				"--traces=DATABASE.TABLE",
				name, traces->table, traces->lacks);
	if (!strcmp(name, spans_view))
		traces_mark(traces, of, sizeof(of));
	text = traces_view(file->text, traces);
	if (!text)
		return why_fail(why, ENOMEM, "out of memory");
	snprintf(mark, sizeof(mark), "%s%08lx%s", view_mark,
		 crc32(0, (const Bytef *)text, (uInt)strlen(text)), of);
	object = live_schema_find(p->live, name);
	if (object)
		err = keep_view(p, name, object, mark, &done);
	return done ? err : replace_view(p, file, name, text, mark, why);
}

/* ---- plan ---- */

static int plan_folder(struct planner *p, const char *folder,
		       int (*plan)(struct planner *p, const struct sql_file *file, struct why *why),
		       struct why *why)
{
	int err = 0;

	for (const struct sql_file *f = sql_files; !err && f->path; f++) {
		if (!strncmp(f->path, folder, strlen(folder)))
			err = plan(p, f, why);
	}
	return err;
}

/* Distributed('name', ...): the database is on a cluster even if not given. */
static void find_cluster(struct planner *p, const char *cluster)
{
	for (size_t i = 0; !cluster && i < p->live->n_objects; i++) {
		const struct live_object *o = &p->live->objects[i];
		const char *at = strncmp(o->name, "ebpf_", 5) || strcmp(o->engine, "Distributed")
					 ? NULL
					 : strchr(o->engine_full, '\'');

		if (!at)
			continue;
		snprintf(p->cluster, sizeof(p->cluster), "%.*s", (int)strcspn(at + 1, "'"), at + 1);
		return;
	}
	snprintf(p->cluster, sizeof(p->cluster), "%s", cluster ?: "");
}

/* Last step: an interrupted upgrade is not recorded. */
static int plan_version(struct planner *p)
{
	bool any = live_schema_find(p->live, "ebpf_agent");
	char *statement = NULL;

	if (p->live->version >= SCHEMA_VERSION)
		return 0;
	if (asprintf(&statement,
		     "INSERT INTO ebpf_schema (version, applied_at, applied_by) "
		     "SELECT %d, now64(6), 'underspan " UNDERSPAN_VERSION "'",
		     SCHEMA_VERSION) < 0)
		return -ENOMEM;
	if (!p->live->version && !any)
		return add_step(p, UPGRADE_CREATE, statement,
				"there is no schema, this is version %d", SCHEMA_VERSION);
	return add_step(p, UPGRADE_CHANGE, statement, "the schema is of version %llu, this is %d",
			(unsigned long long)(p->live->version ?: 1), SCHEMA_VERSION);
}

int upgrade_plan_make(const struct live_schema *live, const char *cluster, uint64_t agents,
		      struct upgrade_plan *ret, struct why *why)
{
	struct planner p = { .live = live };
	char *statement;
	int err = 0;

	find_cluster(&p, cluster);
	p.window = (agents ?: live->agents) * WINDOW_PER_AGENT;
	if (p.window < WINDOW_MIN)
		p.window = WINDOW_MIN;
	if (!live_schema_find(live, "ebpf_schema")) {
		statement = upgrade_schema_table(cluster_of(&p));
		err = statement ? add_step(&p, UPGRADE_CREATE, statement,
					   "there is no table ebpf_schema")
				: -ENOMEM;
	}
	if (!err)
		err = plan_folder(&p, "tables/", plan_table, why);
	if (!err)
		err = plan_folder(&p, "views/", plan_view, why);
	if (!err)
		err = plan_version(&p);
	if (err == -ENOMEM)
		err = why_fail(why, ENOMEM, "out of memory");
	if (err)
		upgrade_plan_free(&p.plan);
	else
		*ret = p.plan;
	return err;
}
