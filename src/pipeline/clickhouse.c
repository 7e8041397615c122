// SPDX-License-Identifier: Apache-2.0
/*
 * Batches into ClickHouse: one INSERT a batch, gzipped, every setting explicit because the
 * servers' defaults have changed between versions, and the verdict of an error by ClickHouse's
 * own exception code. The HTTP itself is src/clickhouse/client.c.
 */
#include <stdatomic.h>
#include <string.h>
#include <zlib.h>

#include "clickhouse/client.h"
#include "pipeline/sink.h"

struct clickhouse_sink {
	struct sink sink;
	struct clickhouse_client *client;
	char run_token[96];
	bool async_insert;
};

/* Replaces the body by its gzip form, once: retries must be byte-identical. */
static int compress_body(struct batch *batch)
{
	z_stream z = { 0 };
	struct buffer out = { 0 };
	int err;

	/* 15 + 16: the largest window, in gzip's wrapping; level 1: CPU is dearer than bytes here
	 */
	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	err = buffer_reserve(&out, deflateBound(&z, batch->body.len));
	if (!err) {
		z.next_in = (Bytef *)batch->body.data;
		z.avail_in = (uInt)batch->body.len;
		z.next_out = (Bytef *)out.data;
		z.avail_out = (uInt)out.capacity;
		err = deflate(&z, Z_FINISH) == Z_STREAM_END ? 0 : -EIO;
		out.len = z.total_out;
	}
	deflateEnd(&z);
	if (err) {
		buffer_free(&out);
		return err;
	}
	buffer_free(&batch->body);
	batch->body = out;
	batch->gzipped = true;
	return 0;
}

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

/*
 * Codes of ClickHouse's src/Common/ErrorCodes.cpp after which the same bytes may succeed: it was
 * overloaded, shutting down or cut off; or somebody has to create a table or mend a password, for
 * which the rows are kept as long as there is room.
 */
static bool worth_a_retry(const struct clickhouse_reply *reply)
{
	static const int codes[] = {
		3, /* UNEXPECTED_END_OF_FILE: our body was cut off on the way */
		159, 160, 164, 202, 203, 209, 210, 236,	 241, 242, 243, 252, 279, 285,
		290, 319, 394, 425, 439, 473, 999, 1002, 16,  60,  81,	115, /* no such column,
										table, database,
										setting */
		192, 193, 194, 497, 516, /* user, password, rights */
	};

	if (reply->exception_code == 0)
		return reply->http_status == 0 || reply->http_status == 408 ||
		       reply->http_status == 429 || reply->http_status >= 500 ||
		       reply->http_status == 401 || reply->http_status == 403 ||
		       reply->http_status == 404;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		if (codes[i] == reply->exception_code)
			return true;
	}
	return false;
}

static void explain_missing_table(const struct clickhouse_reply *reply, struct why *why)
{
	size_t len = strlen(why->text);

	if (reply->exception_code == 60 || reply->exception_code == 81)
		snprintf(why->text + len, sizeof(why->text) - len,
			 " (`underspan schema --apply` creates the tables)");
}

static enum send_result clickhouse_send(struct sink *base, const struct table *table,
					struct batch *batch, struct why *why)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;
	struct clickhouse_reply reply = { 0 };
	struct buffer sql = { 0 };
	struct clickhouse_body body;
	char token[256];
	int err;

	snprintf(token, sizeof(token), "%s-%s-%llu", sink->run_token, table->name,
		 (unsigned long long)batch->sequence);
	const struct clickhouse_param params[] = {
		{ "async_insert", sink->async_insert ? "1" : "0" },
		{ "wait_for_async_insert", "1" },
		{ "insert_deduplicate", "1" },
		{ "insert_deduplication_token", token },
		{ "date_time_input_format", "basic" },
		{ "input_format_skip_unknown_fields", "0" },
		{ "input_format_allow_errors_num", "0" },
		{ 0 },
	};

	if ((!batch->gzipped && compress_body(batch)) || insert_statement(table, &sql)) {
		buffer_free(&sql);
		why_fail(why, ENOMEM, "out of memory");
		return SEND_RETRY;
	}
	body = (struct clickhouse_body){ batch->body.data, batch->body.len, true };
	err = clickhouse_insert(sink->client, sql.data, params, &body, &reply, why);
	buffer_free(&sql);
	if (!err)
		return SEND_OK;
	explain_missing_table(&reply, why);
	return worth_a_retry(&reply) ? SEND_RETRY : SEND_DROP;
}

static void clickhouse_sink_cancel(struct sink *base)
{
	clickhouse_client_cancel(((struct clickhouse_sink *)base)->client);
}

static void clickhouse_sink_free(struct sink *base)
{
	struct clickhouse_sink *sink = (struct clickhouse_sink *)base;

	clickhouse_client_free(sink->client);
	free(sink);
}

int sink_clickhouse_new(const struct clickhouse_endpoint *endpoint, const char *run_token,
			bool async_insert, struct sink **ret_sink, struct why *why)
{
	struct clickhouse_sink *sink = calloc(1, sizeof(*sink));
	int err;

	if (!sink)
		return why_fail(why, ENOMEM, "out of memory");
	err = clickhouse_client_new(endpoint, &sink->client, why);
	if (err) {
		free(sink);
		return err;
	}
	sink->sink = (struct sink){
		.name = "clickhouse",
		.send = clickhouse_send,
		.cancel = clickhouse_sink_cancel,
		.free = clickhouse_sink_free,
	};
	snprintf(sink->run_token, sizeof(sink->run_token), "%s", run_token);
	sink->async_insert = async_insert;
	*ret_sink = &sink->sink;
	return 0;
}
