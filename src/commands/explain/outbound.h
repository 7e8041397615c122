/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that a request's connections brought to servers with rows of their own, for `underspan
 * explain`: the time that it waited for them is explained there. Rows of sql/explain/outbound.sql,
 * attached as "outbound".
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_OUTBOUND_H
#define UNDERSPAN_COMMANDS_EXPLAIN_OUTBOUND_H

#include <jansson.h>

#include "clickhouse/client.h"
#include "commands/explain/cause.h"
#include "commands/explain/timeline.h"

int outbound_attach(struct clickhouse_client *client, json_t *request, struct why *why);

/* The longest request of each server as a line of the timeline. */
void outbound_add_lines(struct lines *lines, const json_t *request);

/* "; it sent GET /path to SERVICE ...", and where to look, if this is most of the cause's time. */
void outbound_add(const json_t *request, struct cause *c);

#endif
