/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small ClickHouse HTTP client on libcurl: queries, inserts, and the errors as ClickHouse means
 * them. One client is one kept-alive connection and belongs to one thread at a time.
 */
#ifndef UNDERSPAN_CLICKHOUSE_CLIENT_H
#define UNDERSPAN_CLICKHOUSE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

/* Where ClickHouse is and who we are there. Strings are heap or NULL; NULL takes the default. */
struct clickhouse_endpoint {
	char *url;  /* http://HOST:PORT or https://HOST:PORT, a path is kept, no user, no query */
	char *user; /* NULL: "default" */
	char *password;		     /* NULL: none; sent as a header, never in a URL */
	char *database;		     /* NULL: "default" */
	char *ca_file;		     /* NULL: the system's certificates */
	char *cert_file, *key_file;  /* NULL: none; of the client, for a server that wants one */
	uint64_t connect_timeout_ns; /* 0: 5 s, name look-up and TLS included */
	uint64_t stall_timeout_ns;   /* 0: 30 s without a byte in either direction */
	uint64_t timeout_ns;	     /* 0: 300 s for the whole request */
	/* asked every second or so, while a request waits: true ends it as a cancelled one; or NULL
	 */
	bool (*give_up)(void);
};

/* So many servers may be named. */
enum { CLICKHOUSE_ENDPOINTS_MAX = 8 };

void clickhouse_endpoint_free(struct clickhouse_endpoint *endpoint); /* its strings, not itself */

bool clickhouse_endpoint_same(const struct clickhouse_endpoint *a,
			      const struct clickhouse_endpoint *b);

/* What a URL of ours must be; `why` says how to put user and password instead. */
int clickhouse_check_url(const char *url, struct why *why);

struct clickhouse_client;

/* Copies the endpoint. */
int clickhouse_client_new(const struct clickhouse_endpoint *endpoint,
			  struct clickhouse_client **ret_client, struct why *why);
void clickhouse_client_free(struct clickhouse_client *client);

const char *clickhouse_client_url(const struct clickhouse_client *client);

/* The next request begins anew: it asks for the address, and connects. */
void clickhouse_client_disconnect(struct clickhouse_client *client);

/*
 * From any thread (or a signal handler): a request under way and all later ones end with
 * -ECANCELED within a second.
 */
void clickhouse_client_cancel(struct clickhouse_client *client);

/* One URL parameter: a setting, `param_x` of a {x:Type} placeholder, `query_id`. */
struct clickhouse_param {
	const char *name;
	const char *value;
};

/* What came back; filled on every return, whatever its value. */
struct clickhouse_reply {
	long http_status;   /* 0: no answer */
	int exception_code; /* ClickHouse's "Code: N", 0: none */
	uint64_t read_rows, read_bytes, written_rows, written_bytes;
	uint64_t retry_after_ns; /* a proxy's Retry-After, 0: none */
	bool from_clickhouse;	 /* it had a header that only ClickHouse sends */
	char message[1024];	 /* ClickHouse's sentence, or libcurl's; "" when all went well */
};

/*
 * All three return 0 done, -EREMOTEIO ClickHouse (or what stands before it) answered with an error
 * (see the reply's exception_code and http_status), -ETIMEDOUT, -ECANCELED, -ECONNREFUSED (no
 * connection), -ECONNRESET (broke after the request was sent: unknown whether it was carried out),
 * -EBADMSG (TLS or not HTTP), -EFBIG, -ENOMEM. `why` holds a sentence whenever not 0.
 *
 * `format` NULL leaves the server's default; `params` may be NULL, else ends with {0}.
 */
typedef int (*clickhouse_on_bytes)(const char *bytes, size_t n, void *context); /* 0 or -errno */

int clickhouse_query(struct clickhouse_client *client, const char *sql, const char *format,
		     const struct clickhouse_param *params, clickhouse_on_bytes on_bytes,
		     void *context, struct clickhouse_reply *reply, struct why *why);

/*
 * The same into memory: NUL-terminated, to be freed by the caller, at most 64 MiB. The server is
 * told to wait for the end, so that an error late in the query is an error here, from every
 * version.
 */
int clickhouse_query_text(struct clickhouse_client *client, const char *sql, const char *format,
			  const struct clickhouse_param *params, char **ret_text, size_t *ret_len,
			  struct clickhouse_reply *reply, struct why *why);

struct clickhouse_body {
	const void *bytes;
	size_t len;
	bool gzipped; /* bytes are gzip already: sent with Content-Encoding: gzip */
};

/*
 * `insert_sql` is everything before the data: "INSERT INTO t (a, b) FORMAT JSONEachRow". The body
 * is sent as it is, so a retry of the same batch with the same insert_deduplication_token is
 * byte-identical.
 */
int clickhouse_insert(struct clickhouse_client *client, const char *insert_sql,
		      const struct clickhouse_param *params, const struct clickhouse_body *body,
		      struct clickhouse_reply *reply, struct why *why);

/* GET /ping: no authentication, no query. */
int clickhouse_ping(struct clickhouse_client *client, struct why *why);

/* `name` in backquotes, escaped; false if it does not fit. */
bool clickhouse_quote_name(const char *name, char *buf, size_t size);

/* "Code: 60. DB::Exception: ..." -> 60; 0 if the text does not start so. */
int clickhouse_exception_code(const char *body, size_t len);

#endif
