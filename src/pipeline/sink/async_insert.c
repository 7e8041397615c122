// SPDX-License-Identifier: Apache-2.0
/* Which tables allow async_insert. See async_insert.h. */
#include "pipeline/sink/async_insert.h"

#include <string.h>

#include "clickhouse/exceptions.h"
#include "clickhouse/ddl_table.h"
#include "base/log.h"

enum { TABLES_MAX = 128, TABLE_MAX = 96 };

struct async_table {
	char name[TABLE_MAX];
	bool allowed;
};

struct async_insert {
	struct async_table tables[TABLES_MAX];
	size_t n;
};

struct async_insert *async_insert_new(void)
{
	return calloc(1, sizeof(struct async_insert));
}

void async_insert_free(struct async_insert *async)
{
	free(async);
}

static bool is_before(const char *version, int year, int month)
{
	int y = 0, m = 0;

	return sscanf(version, "%d.%d", &y, &m) != 2 || y < year || (y == year && m < month);
}

/*
 * ReplicatedMergeTreeSink checks each INSERT's token since 23.7. MergeTreeSink first had no tokens
 * of asynchronous INSERTs; later versions drop a whole part, rows of other agents included, for a
 * single known token.
 */
const char *async_insert_refusal(const char *engine, const char *version, bool own_store)
{
	if (own_store)
		return NULL;
	if (!*engine)
		return "system.tables does not show the table's engine to this user, and only "
		       "Replicated and Shared engines deduplicate retried asynchronous INSERTs";
	if (!strcmp(engine, "Distributed"))
		return "the table is Distributed and may split INSERTs: send rows to the local "
		       "tables";
	if (!ddl_engine_is_replicated(engine))
		return "only Replicated and Shared engines deduplicate retried asynchronous "
		       "INSERTs";
	if (is_before(version, 23, 7))
		return "servers before 23.7 do not support deduplication tokens of asynchronous "
		       "INSERTs";
	return NULL;
}

static int ask(struct clickhouse_client *client, const char *table, bool *ret_allowed,
	       struct clickhouse_reply *reply, struct why *why)
{
	static const char sql[] = "SELECT version(), (SELECT any(engine) FROM system.tables WHERE "
				  "database = currentDatabase() AND name = {t:String})";
	const struct clickhouse_param params[] = { { "param_t", table }, { 0 } };
	char version[64] = "", engine[64] = "";
	AUTO_FREE char *text = NULL;
	const char *refusal;
	int err = clickhouse_query_text(client, sql, "TabSeparated", params, &text, NULL, reply,
					why);

	/* without the right to ask there is no answer to wait for */
	if (err && (err != -EREMOTEIO || reply->exception_code != EXCEPTION_ACCESS_DENIED))
		return err;
	if (!err)
		sscanf(text, "%63[^\t]\t%63[^\n]", version, engine);
	if (!strcmp(engine, "\\N"))
		engine[0] = '\0';
	refusal = async_insert_refusal(engine, version, reply->from_own_store);
	if (refusal)
		log_warn("%s: async_insert is not used, the engine is %s: %s", table,
			 *engine ? engine : "not known", refusal);
	*ret_allowed = !refusal;
	return 0;
}

int async_insert_allowed(struct async_insert *async, struct clickhouse_client *client,
			 const char *insert, bool *ret_allowed, struct clickhouse_reply *reply,
			 struct why *why)
{
	static const char into[] = "INSERT INTO ";
	struct async_table *t = &async->tables[async->n];
	size_t len;
	int err;

	*ret_allowed = false;
	if (strncmp(insert, into, sizeof(into) - 1) != 0 || async->n == TABLES_MAX)
		return 0;
	insert += sizeof(into) - 1;
	len = strcspn(insert, " (");
	if (len >= TABLE_MAX)
		return 0;
	for (size_t i = 0; i < async->n; i++) {
		if (strlen(async->tables[i].name) == len &&
		    !memcmp(async->tables[i].name, insert, len)) {
			*ret_allowed = async->tables[i].allowed;
			return 0;
		}
	}
	memcpy(t->name, insert, len);
	t->name[len] = '\0';
	err = ask(client, t->name, &t->allowed, reply, why);
	if (!err) {
		async->n++;
		*ret_allowed = t->allowed;
	}
	return err;
}
