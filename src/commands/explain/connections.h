/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's connections for `underspan explain`: handshakes, lost packets and closed windows
 * (rows of sql/explain/connections.sql, attached as "connections"), and exceeded EC2 allowances
 * (allowances.sql, "allowances").
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_CONNECTIONS_H
#define UNDERSPAN_COMMANDS_EXPLAIN_CONNECTIONS_H

#include <jansson.h>

#include "clickhouse/client.h"
#include "commands/explain/cause.h"
#include "commands/explain/timeline.h"

/* Attaches both to a request whose parts for the network are large enough for a cause. */
int connections_attach(struct clickhouse_client *client, json_t *request, struct why *why);

/* The events as lines of the timeline. */
void connections_add_lines(struct lines *lines, const json_t *request);

/* The parts net_ms and client_slow_ms in words, with what the rows say of them. */
void cause_net(const json_t *request, struct cause *c);
void cause_client_slow(const json_t *request, struct cause *c);

/* A remedy for a client that is late, in parts of a sentence. */
struct client_fix {
	const char *doing, *or_else; /* "reading", ", or smaller answers" */
	const char *in_front,
		*of_proxy; /* what a proxy would do, and what the client, if it is one */
};

/*
 * Adds to what is said who the client is, with the remedy: a watched process (explain/client.sql,
 * "client"), a program of the same host, or unknown.
 */
void connections_fix_client(const json_t *request, struct cause *c, const struct client_fix *fix);

/* Adds to what is said of a blocked loop its peer, and to the remedy what helps if that is a DNS
 * server. */
void connections_add_blocked(const json_t *request, struct cause *c);

/* "; a connection to X ...": what the only open request of an event loop awaited, as far as rows
 * show it. */
void connections_add_awaited(const json_t *request, struct cause *c);

#endif
