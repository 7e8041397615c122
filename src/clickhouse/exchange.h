/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP exchange with ClickHouse: libcurl's options, what comes back, and what it means. */
#ifndef UNDERSPAN_CLICKHOUSE_EXCHANGE_H
#define UNDERSPAN_CLICKHOUSE_EXCHANGE_H

#include <curl/curl.h>
#include <stdatomic.h>
#include <stddef.h>

#include "clickhouse/client.h"
#include "util.h"

enum {
	EXCHANGE_HEAD_BYTES = 8192, /* of a body's either end: where an exception is looked for */
	EXCHANGE_TAG_MAX = 64,
};

struct clickhouse_client {
	CURLSH *connections; /* and addresses, TLS sessions: what outlives a request */
	char *url, *database, *ca_file, *cert_file, *key_file;
	struct curl_slist *credentials;
	uint64_t connect_timeout_ns, stall_timeout_ns, timeout_ns;
	atomic_bool cancelled;
	bool (*give_up)(void);
};

struct exchange {
	struct clickhouse_client *client;
	struct clickhouse_reply *reply;
	clickhouse_on_bytes on_bytes; /* NULL: the body is of no interest unless it is an error */
	void *context;
	int consumer_err; /* what on_bytes returned */
	char head[EXCHANGE_HEAD_BYTES], tail[EXCHANGE_HEAD_BYTES];
	size_t head_len, tail_len;
	char tag[EXCHANGE_TAG_MAX]; /* marks an exception that comes after the first bytes */
};

/* What requests share, one after the other; NULL: no memory. */
CURLSH *exchange_connections(void);

/* GET, or POST with a body; errors as clickhouse_query() has them. */
int exchange_perform(struct exchange *x, const char *url, struct curl_slist *headers,
		     const void *body, size_t len, struct why *why);

#endif
