/* SPDX-License-Identifier: Apache-2.0 */
/* Address of a ClickHouse server, with credentials and limits of time. */
#ifndef UNDERSPAN_CLICKHOUSE_ENDPOINT_H
#define UNDERSPAN_CLICKHOUSE_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* Address and credentials. Strings are heap or NULL; NULL: the default. */
struct clickhouse_endpoint {
	char *url; /* http://HOST:PORT or https://HOST:PORT, a path is kept, no user, no query */
	char *unix_socket;  /* NULL: TCP; otherwise connect to this socket, the URL's host is only a
			       name */
	char *user;	    /* NULL: "default" */
	char *password;	    /* NULL: none; sent as a header, never in a URL */
	char *database;	    /* NULL: "default" */
	char *table_prefix; /* of own tables and views (own_names.h); NULL: none */
	char *ca_file;	    /* NULL: the system's certificates */
	char *cert_file,
		*key_file; /* NULL: none; client certificate, for servers that require one */
	uint64_t connect_timeout_ns; /* 0: 5 s, name look-up and TLS included */
	uint64_t stall_timeout_ns;   /* 0: 30 s without a byte in either direction */
	uint64_t timeout_ns;	     /* 0: 300 s for the whole request */
	/*
	 * Interactive use: no time limits unless given, and a query is cancelled in the server if
	 * the client gives up or disconnects.
	 */
	bool patient;
	/* called about every second during a request: true cancels the request; may be NULL */
	bool (*give_up)(void);
};

/* Maximum number of servers. */
enum { CLICKHOUSE_ENDPOINTS_MAX = 8 };

void clickhouse_endpoint_free(
	struct clickhouse_endpoint *endpoint); /* frees the strings, not the struct */

bool clickhouse_endpoint_same(const struct clickhouse_endpoint *a,
			      const struct clickhouse_endpoint *b);

/* Checks a URL; `why` says how to give user and password instead. */
int clickhouse_check_url(const char *url, struct why *why);

#endif
