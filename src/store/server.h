/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClickHouse HTTP interface of the engine. One thread per connection: a slow SELECT delays only
 * the client of the connection.
 */
#ifndef UNDERSPAN_STORE_SERVER_H
#define UNDERSPAN_STORE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"
#include "base/util.h"

struct server_options {
	struct engine *engine;
	int listen_fd, socket_fd; /* listening TCP and unix sockets; the server takes ownership */
	const char *password;	  /* of user "default" */
	uint64_t max_body_bytes;
	uint64_t max_connections;
	uint64_t client_timeout_ns; /* limit for a client that neither sends nor reads */
};

struct server;

/* "http://HOST:PORT" of a listening socket; 0 or -errno. */
int server_url(int fd, char *buf, size_t size);

int server_start(const struct server_options *options, struct server **ret_server, struct why *why);

/*
 * Refuses new requests, waits up to `grace_ns` for running requests, then cancels their queries.
 * False: some did not end; server and engine must not be freed, the process has to exit.
 */
bool server_stop(struct server *server, uint64_t grace_ns);

#endif
