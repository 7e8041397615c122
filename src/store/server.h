/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClickHouse HTTP interface in front of the engine. A thread a connection: a slow SELECT holds
 * up its own client and nobody else.
 */
#ifndef UNDERSPAN_STORE_SERVER_H
#define UNDERSPAN_STORE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "store/engine.h"
#include "util.h"

struct server_options {
	struct engine *engine;
	const char *listen;   /* HOST:PORT, port 0: the kernel chooses */
	bool listen_anywhere; /* otherwise loopback only */
	const char *password; /* of user "default" */
	uint64_t max_body_bytes;
	uint64_t max_connections;
	uint64_t client_timeout_ns; /* a client that neither sends nor reads */
};

struct server;

int server_start(const struct server_options *options, struct server **ret_server, struct why *why);
const char *server_url(const struct server *server);

/*
 * No new requests, up to `grace_ns` for those under way, then their queries are cancelled. False
 * when some still would not end: then neither server nor engine may be freed, only the process.
 */
bool server_stop(struct server *server, uint64_t grace_ns);

#endif
