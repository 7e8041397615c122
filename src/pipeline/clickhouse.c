// SPDX-License-Identifier: Apache-2.0
/*
 * Batches into ClickHouse: one INSERT a batch, gzipped, every setting explicit because the
 * servers' defaults have changed between versions. What an error means is retry.c's, which server
 * is asked endpoints.c's, the HTTP src/clickhouse/client.c's.
 */
#include <pthread.h>
#include <string.h>

#include "pipeline/endpoints.h"
#include "pipeline/retry.h"

struct clickhouse_sink {
	struct sink sink;
	bool async_insert;
	struct endpoints *endpoints; /* the sender's, who alone changes it, under the lock */

	pthread_mutex_t lock;
	struct endpoints *next; /* to be used from the next send on; NULL: the same as before */
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
	return err ? err : buffer_append(sql, ") FORMAT JSONEachRow", 21); /* with its NUL */
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

static int insert(struct clickhouse_sink *sink, const struct batch *batch,
		  struct clickhouse_reply *reply, struct why *why)
{
	const char *on = sink->async_insert ? "1" : "0";
	const struct clickhouse_param params[] = {
		{ "async_insert", on },
		{ "wait_for_async_insert", "1" },
		/* into a Distributed table: yes means that the shards have it (now named
		 * distributed_foreground_insert; the old name is understood everywhere) */
		{ "insert_distributed_sync", "1" },
		{ "insert_deduplicate", "1" },
		{ "async_insert_deduplicate", on },
		{ "insert_deduplication_token", batch->token },
		{ "date_time_input_format", "basic" },
		{ "input_format_skip_unknown_fields", "0" },
		{ "input_format_allow_errors_num", "0" },
		{ "wait_end_of_query", "1" },
		{ 0 },
	};
	const struct clickhouse_body body = { batch->body.data, batch->body.len, true };

	return clickhouse_insert(endpoints_choose(sink->endpoints), batch->insert, params, &body,
				 reply, why);
}

static void explain_missing_table(const struct clickhouse_reply *reply, struct why *why)
{
	size_t len = strlen(why->text);

	if (reply->exception_code == 60 || reply->exception_code == 81)
		snprintf(why->text + len, sizeof(why->text) - len,
			 " (`underspan schema --apply` creates the tables)");
}

static enum send_result clickhouse_send(struct sink *base, const struct batch *batch,
					struct send_reply *ret)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;
	struct clickhouse_reply reply = { 0 };
	enum send_result result;
	int err;

	take_next(sink);
	err = insert(sink, batch, &reply, &ret->why);
	if (!err) {
		endpoints_ok(sink->endpoints);
		return SEND_OK;
	}
	explain_missing_table(&reply, &ret->why);
	ret->retry_after_ns = reply.retry_after_ns;
	result = retry_verdict(err, &reply);
	/* an answer about a table, and nobody else to ask: the other tables may do better */
	if (result == SEND_RETRY_ALL && reply.exception_code &&
	    endpoints_count(sink->endpoints) == 1)
		result = SEND_RETRY;
	if (result == SEND_RETRY_ALL)
		endpoints_failed(sink->endpoints, reply.retry_after_ns);
	else if (reply.exception_code)
		endpoints_ok(sink->endpoints);
	/* it lives, and has no such table or user: another one may */
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
	err = endpoints_new(endpoints, n, &sink->endpoints, why);
	if (err) {
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
	sink->async_insert = async_insert;
	pthread_mutex_init(&sink->lock, NULL);
	*ret_sink = &sink->sink;
	return 0;
}
