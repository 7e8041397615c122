/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the store: deadlines for a request's head and body, eviction when connections run
 * out, and cancellation of a query whose client has disconnected.
 *
 * A connection is untrusted until a request with the right password; connections to the unix socket
 * are trusted. Untrusted connections have one deadline for everything sent, and at most half of all
 * connections: the oldest is closed to admit a new client. Thread-safe.
 */
#ifndef UNDERSPAN_STORE_CLIENTS_H
#define UNDERSPAN_STORE_CLIENTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/engine.h"
#include "base/util.h"

struct clients;
struct client;

/* `timeout_ns`: time for a head or for the first byte of a body; at most 10 s for untrusted
 * connections. NULL: out of memory or threads. */
struct clients *clients_new(struct engine *engine, size_t max_connections, uint64_t timeout_ns);
/* All connections must have been closed. */
void clients_free(struct clients *c);

/* MHD_OPTION_NOTIFY_CONNECTION, with the clients as `cls` */
void clients_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
		    enum MHD_ConnectionNotificationCode what);

struct client *client_of(struct MHD_Connection *connection);

/* A request had the right password. */
void client_trust(struct client *client);
bool client_is_trusted(struct client *client);

/* `bytes` of a body have arrived: extends the deadline, at 16 KiB/s. */
void client_sends(struct client *client, size_t bytes);

/* The request is complete: no deadline until the answer is sent; the time for the next request
 * begins then. */
void client_waits(struct client *client);
void client_done(struct client *client);

/*
 * The client waits for the query with log_comment `id` until client_done(). A disconnect cancels
 * the query; closing the sending side is a disconnect, as in ClickHouse.
 */
void client_asks(struct client *client, const char *id);

#endif
