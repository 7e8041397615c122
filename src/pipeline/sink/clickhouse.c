// SPDX-License-Identifier: Apache-2.0
/*
 * Sink to ClickHouse: one gzipped INSERT per batch, with explicit settings because defaults differ
 * between server versions. Errors are interpreted by retry.c, servers chosen by endpoints.c, HTTP
 * is src/clickhouse/client.c.
 */
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "clickhouse/exceptions.h"
#include "pipeline/sink/async_insert.h"
#include "pipeline/sink/columns.h"
#include "pipeline/sink/endpoints.h"
#include "pipeline/sink/retry.h"

/* Limit of missing columns of a table that are found in sequence. */
enum { STATEMENTS_MAX = 64 };

struct clickhouse_sink {
	struct sink sink;
	struct async_insert *async_insert; /* sender thread only; NULL: not wanted */
	struct endpoints *endpoints;	   /* written by the sender thread only, under the lock */
	struct known_columns *columns;	   /* sender thread only */

	pthread_mutex_t lock;
	struct endpoints *next; /* for the next send; NULL: unchanged */
	bool cancelled;
};

static int insert_statement(const struct table *table, struct buffer *sql)
{
	const char *separator = " (";
	int err = buffer_append(sql, "INSERT INTO ", 12);

	if (!err)
		err = buffer_append(sql, table->name, strlen(table->name));
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; !err && i < table->n_columns[part]; i++) {
			const char *name = table->columns[part][i].name;

			err = buffer_append(sql, separator, 2);
			if (!err)
				err = buffer_append(sql, name, strlen(name));
			separator = ", ";
		}
	}
	return err ? err : buffer_append(sql, ") FORMAT JSONEachRow", 21); /* including the NUL */
}

static void take_next(struct clickhouse_sink *sink)
{
	struct endpoints *old = NULL;

	pthread_mutex_lock(&sink->lock);
	if (sink->next && !sink->cancelled) {
		old = sink->endpoints;
		sink->endpoints = sink->next;
		sink->next = NULL;
	}
	pthread_mutex_unlock(&sink->lock);
	endpoints_free(old);
}

static int insert(struct clickhouse_client *client, const struct batch *batch,
		  const char *statement, bool async, struct clickhouse_reply *reply,
		  struct why *why)
{
	const char *on = async ? "1" : "0";
	const struct clickhouse_param params[] = {
		{ "async_insert", on },
		{ "wait_for_async_insert", "1" },
		/* Distributed table: success means that the shards have the rows (now named
		 * distributed_foreground_insert; all versions accept the old name) */
		{ "insert_distributed_sync", "1" },
		{ "insert_deduplicate", "1" },
		{ "async_insert_deduplicate", on },
		{ "insert_deduplication_token", batch->token },
		{ "date_time_input_format", "basic" },
		/* the rows contain columns that the statement omits */
		{ "input_format_skip_unknown_fields", statement ? "1" : "0" },
		{ "input_format_allow_errors_num", "0" },
		{ "wait_end_of_query", "1" },
		{ 0 },
	};
	const struct clickhouse_body body = { batch->body.data, batch->body.len, true };

	return clickhouse_insert(client, statement ?: batch->insert, params, &body, reply, why);
}

/* INSERT with the existing columns only; rows and token are unchanged. */
static int insert_what_fits(struct clickhouse_sink *sink, const struct batch *batch,
			    struct clickhouse_reply *reply, struct send_reply *ret)
{
	struct clickhouse_client *client;
	bool learnt = true, async = false;
	int err = 0;

	endpoints_prefer(sink->endpoints, batch->doubt_server);
	client = endpoints_choose(sink->endpoints);
	ret->server = endpoints_server(sink->endpoints);
	ret->only_server = endpoints_count(sink->endpoints) == 1;
	if (sink->async_insert)
		err = async_insert_allowed(sink->async_insert, client, batch->insert, &async, reply,
					   &ret->why);
	if (err) {
		ret->not_sent = true;
		return err;
	}
	for (int i = 0; learnt && i < STATEMENTS_MAX; i++) {
		AUTO_FREE char *statement = NULL;

		err = known_columns_statement(sink->columns, client, batch->insert, &statement,
					      &ret->columns_left_out);
		if (err)
			return why_fail(&ret->why, ENOMEM, "out of memory");
		err = insert(client, batch, statement, async, reply, &ret->why);
		ret->unknown |= retry_is_unknown(err, reply);
		learnt = err == -EREMOTEIO &&
			 known_columns_learn(sink->columns, client, batch->insert, reply);
	}
	return err;
}

static void explain_missing_table(const struct clickhouse_reply *reply, struct why *why)
{
	size_t len = strlen(why->text);

	if (reply->exception_code == EXCEPTION_UNKNOWN_TABLE ||
	    reply->exception_code == EXCEPTION_UNKNOWN_DATABASE)
		snprintf(why->text + len, sizeof(why->text) - len,
			 " (`underspan schema --apply` creates the tables)");
	else if (reply->exception_code == EXCEPTION_NO_SUCH_COLUMN_IN_TABLE ||
		 reply->exception_code == EXCEPTION_ILLEGAL_COLUMN)
		snprintf(why->text + len, sizeof(why->text) - len,
			 " (`underspan schema --apply` adds columns)");
}

static enum send_result clickhouse_send(struct sink *base, const struct batch *batch,
					struct send_reply *ret)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;
	struct clickhouse_reply reply = { 0 };
	enum send_result result;
	int err;

	take_next(sink);
	err = insert_what_fits(sink, batch, &reply, ret);
	if (!err) {
		endpoints_ok(sink->endpoints);
		known_columns_taken(sink->columns, batch->insert);
		return SEND_OK;
	}
	explain_missing_table(&reply, &ret->why);
	ret->retry_after_ns = reply.retry_after_ns;
	result = retry_verdict(err, &reply);
	/* an error of one table on the only server: rows of further tables may succeed */
	if (result == SEND_RETRY_ALL && reply.exception_code &&
	    endpoints_count(sink->endpoints) == 1)
		result = SEND_RETRY;
	if (result == SEND_RETRY_ALL)
		endpoints_failed(sink->endpoints, reply.retry_after_ns);
	else if (reply.exception_code)
		endpoints_ok(sink->endpoints);
	/* the server is up without the table or user: the next server may have both */
	if (result == SEND_RETRY_SLOW)
		endpoints_next(sink->endpoints);
	return result;
}

static uint64_t clickhouse_ready_at(struct sink *base)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;

	take_next(sink);
	return endpoints_ready_at(sink->endpoints);
}

static void clickhouse_sink_cancel(struct sink *base)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;

	pthread_mutex_lock(&sink->lock);
	sink->cancelled = true;
	endpoints_cancel(sink->endpoints);
	pthread_mutex_unlock(&sink->lock);
}

static void clickhouse_sink_free(struct sink *base)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;

	endpoints_free(sink->endpoints);
	endpoints_free(sink->next);
	known_columns_free(sink->columns);
	async_insert_free(sink->async_insert);
	pthread_mutex_destroy(&sink->lock);
	free(sink);
}

int sink_clickhouse_replace(struct sink *base, const struct clickhouse_endpoint *endpoints,
			    size_t n, struct why *why)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;
	struct endpoints *next, *unused;
	int err = endpoints_new(endpoints, n, &next, why);

	if (err)
		return err;
	pthread_mutex_lock(&sink->lock);
	unused = sink->next;
	sink->next = next;
	pthread_mutex_unlock(&sink->lock);
	endpoints_free(unused);
	return 0;
}

int sink_clickhouse_new(const struct clickhouse_endpoint *endpoints, size_t n, bool async_insert,
			struct sink **ret_sink, struct why *why)
{
	struct clickhouse_sink *sink = calloc(1, sizeof(*sink));
	int err;

	if (!sink)
		return why_fail(why, ENOMEM, "out of memory");
	sink->columns = known_columns_new();
	sink->async_insert = async_insert ? async_insert_new() : NULL;
	err = sink->columns && (sink->async_insert || !async_insert)
		      ? endpoints_new(endpoints, n, &sink->endpoints, why)
		      : why_fail(why, ENOMEM, "out of memory");
	if (err) {
		known_columns_free(sink->columns);
		async_insert_free(sink->async_insert);
		free(sink);
		return err;
	}
	sink->sink = (struct sink){
		.name = "clickhouse",
		.statement = insert_statement,
		.send = clickhouse_send,
		.ready_at = clickhouse_ready_at,
		.cancel = clickhouse_sink_cancel,
		.free = clickhouse_sink_free,
	};
	pthread_mutex_init(&sink->lock, NULL);
	*ret_sink = &sink->sink;
	return 0;
}
