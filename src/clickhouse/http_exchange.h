/* SPDX-License-Identifier: Apache-2.0 */
/* A client, and one request of it with the answer: for client.c, http_post.c and http_verdict.c. */
#ifndef UNDERSPAN_CLICKHOUSE_HTTP_EXCHANGE_H
#define UNDERSPAN_CLICKHOUSE_HTTP_EXCHANGE_H

#include <curl/curl.h>
#include <stdatomic.h>
#include <stddef.h>

#include "clickhouse/reply.h"
#include "base/util.h"

enum {
	EXCHANGE_HEAD_BYTES = 8192, /* bytes of both ends of a body, searched for an exception */
	EXCHANGE_TAG_MAX = 64,
	EXCHANGE_UNANSWERED_MAX = 3, /* looks at a server that has answered before */
	EXCHANGE_PING_S = 10,
};

/* Without a byte, until the first look and between looks at the server. */
#define EXCHANGE_SILENCE_NS    (5 * NSEC_PER_SEC)
#define EXCHANGE_LOOK_AGAIN_NS (30 * NSEC_PER_SEC)

struct clickhouse_client {
	CURLSH *connections; /* connections, addresses and TLS sessions that outlive a request */
	char *url, *unix_socket, *database, *table_prefix, *ca_file, *cert_file, *key_file;
	struct curl_slist *credentials;
	uint64_t connect_timeout_ns, stall_timeout_ns, timeout_ns;
	atomic_bool cancelled;
	bool patient;
	char query_id[64];
	bool (*give_up)(void);
	const struct clickhouse_client *parent; /* cancelled with it; NULL: none */
	bool has_answered;			/* anything, ever */
	bool deaf;				/* the last question was given up for that */
};

struct exchange {
	struct clickhouse_client *client;
	struct clickhouse_reply *reply;
	clickhouse_on_bytes on_bytes; /* NULL: the body is ignored unless an error */
	void *context;
	int consumer_err; /* return value of on_bytes */
	char head[EXCHANGE_HEAD_BYTES], tail[EXCHANGE_HEAD_BYTES];
	size_t head_len, tail_len;
	bool found;		    /* an exception in the body of HTTP 200, before its end */
	char tag[EXCHANGE_TAG_MAX]; /* tag of an exception after the first bytes */
	char location[256];	    /* of a redirect */
	long tunnel_status;	    /* a proxy's answer to CONNECT; 0: none */
	/* Whether a silent server answers another request; NULL: it is not asked. */
	bool (*answers)(struct clickhouse_client *client);
	uint64_t next_look_ns;
	unsigned unanswered;
	bool deaf; /* given up for that reason */
};

#endif
