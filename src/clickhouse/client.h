/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClickHouse HTTP client on libcurl: queries, INSERTs, ClickHouse's errors. A client has a single
 * keep-alive connection and is used by one thread at a time.
 */
#ifndef UNDERSPAN_CLICKHOUSE_CLIENT_H
#define UNDERSPAN_CLICKHOUSE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "clickhouse/endpoint.h"
#include "clickhouse/reply.h"

struct clickhouse_client;

/* Copies the endpoint. */
int clickhouse_client_new(const struct clickhouse_endpoint *endpoint,
			  struct clickhouse_client **ret_client, struct why *why);
void clickhouse_client_free(struct clickhouse_client *client);

/* Before the names of underspan's tables in all statements of the client; NULL: none. */
const char *clickhouse_client_table_prefix(const struct clickhouse_client *client);

const char *clickhouse_client_url(const struct clickhouse_client *client);

/* Id of the current or last query of a patient client. */
const char *clickhouse_client_query_id(const struct clickhouse_client *client);

/* Condition to find a query by id: the embedded store keeps the id as log_comment. */
#define CLICKHOUSE_IS_QUERY "(query_id = {id:String} OR Settings['log_comment'] = {id:String})"

/* The next request resolves the name and connects again. */
void clickhouse_client_disconnect(struct clickhouse_client *client);

/*
 * From any thread or signal handler: current and later requests end with -ECANCELED within a
 * second.
 */
void clickhouse_client_cancel(struct clickhouse_client *client);

/* A URL parameter: a setting, `param_x` for a {x:Type} placeholder, `query_id`. */
struct clickhouse_param {
	const char *name;
	const char *value;
};

/*
 * All three return 0; -EREMOTEIO: ClickHouse or a proxy answered with an error (exception_code and
 * http_status of the reply); -ETIMEDOUT; -ECANCELED; -ECONNREFUSED: no connection; -ECONNRESET:
 * broken after the request was sent, outcome unknown; -EBADMSG: TLS failure or not HTTP; -EFBIG;
 * -ENOMEM. `why` is set for all errors.
 *
 * `format` NULL: the server's default; `params`: NULL, or ends with {0}.
 */
int clickhouse_query(struct clickhouse_client *client, const char *sql, const char *format,
		     const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
		     void *context, struct clickhouse_reply *reply, struct why *why);

/*
 * The same into memory: NUL-terminated, at most 64 MiB, freed by the caller. The server holds the
 * answer until the end of the query, so that late errors are reported by every version.
 */
int clickhouse_query_text(struct clickhouse_client *client, const char *sql, const char *format,
			  const struct clickhouse_param *params, char **ret_text, size_t *ret_len,
			  struct clickhouse_reply *reply, struct why *why);

struct clickhouse_body {
	const void *bytes;
	size_t len;
	bool gzipped; /* the bytes are gzip: sent with Content-Encoding: gzip */
};

/*
 * `insert_sql`: the statement before the data: "INSERT INTO t (a, b) FORMAT JSONEachRow". The body
 * is sent unchanged: a retry with the same insert_deduplication_token is byte-identical.
 */
int clickhouse_insert(struct clickhouse_client *client, const char *insert_sql,
		      const struct clickhouse_param *params, const struct clickhouse_body *body,
		      struct clickhouse_reply *reply, struct why *why);

/* GET /ping: without authentication or query. */
int clickhouse_ping(struct clickhouse_client *client, struct why *why);

/* `name` escaped in backquotes; false: too long. */
bool clickhouse_quote_name(const char *name, char *buf, size_t size);

/*
 * The value of a {name:Type} placeholder as ClickHouse reads it: like a field of TabSeparated,
 * which ends at a tab or a line end. To be freed; NULL without memory.
 */
char *clickhouse_escape_value(const char *value);

#endif
