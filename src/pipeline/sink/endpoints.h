/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClickHouse servers of a cluster: the current server is used until a failure, then the next. A
 * failed server is avoided for a growing time.
 */
#ifndef UNDERSPAN_PIPELINE_SINK_ENDPOINTS_H
#define UNDERSPAN_PIPELINE_SINK_ENDPOINTS_H

#include "clickhouse/client.h"
#include "base/util.h"

struct endpoints;

/* Copies the endpoints. */
int endpoints_new(const struct clickhouse_endpoint *endpoints, size_t n,
		  struct endpoints **ret_endpoints, struct why *why);
void endpoints_free(struct endpoints *endpoints);
size_t endpoints_count(const struct endpoints *endpoints);

/* The server to use now: the current server, unless failed and another may be tried earlier. */
struct clickhouse_client *endpoints_choose(struct endpoints *endpoints);

/* Makes `server` the current server, if available now. 0: any. To be called before
 * endpoints_choose(). */
void endpoints_prefer(struct endpoints *endpoints, uint64_t server);

/* Id of the current server: never 0, the same in every run. */
uint64_t endpoints_server(const struct endpoints *endpoints);

/* Result of the chosen server. */
void endpoints_ok(struct endpoints *endpoints);
void endpoints_failed(struct endpoints *endpoints, uint64_t retry_after_ns);

/* The answer concerned the server's own data: switches to another available server. */
void endpoints_next(struct endpoints *endpoints);

/* CLOCK_MONOTONIC at which a server is available; 0: now. */
uint64_t endpoints_ready_at(const struct endpoints *endpoints);

/* Thread-safe. */
void endpoints_cancel(struct endpoints *endpoints);

#endif
