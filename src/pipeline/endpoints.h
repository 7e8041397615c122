/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several ClickHouse servers of one cluster: one is used until it fails, then the next; each that
 * failed is left alone for its own, growing time.
 */
#ifndef UNDERSPAN_ENDPOINTS_H
#define UNDERSPAN_ENDPOINTS_H

#include "clickhouse/client.h"
#include "util.h"

struct endpoints;

/* Copies the endpoints. */
int endpoints_new(const struct clickhouse_endpoint *endpoints, size_t n,
		  struct endpoints **ret_endpoints, struct why *why);
void endpoints_free(struct endpoints *endpoints);
size_t endpoints_count(const struct endpoints *endpoints);

/* The one to use now: the present one unless it failed and another may be tried earlier. */
struct clickhouse_client *endpoints_choose(struct endpoints *endpoints);

/* How the one that was chosen did. */
void endpoints_ok(struct endpoints *endpoints);
void endpoints_failed(struct endpoints *endpoints, uint64_t retry_after_ns);

/* Its answer was about what it has; another one that may be tried now is the present one then. */
void endpoints_next(struct endpoints *endpoints);

/* CLOCK_MONOTONIC from which on one may be tried; 0: at once. */
uint64_t endpoints_ready_at(const struct endpoints *endpoints);

/* From any thread. */
void endpoints_cancel(struct endpoints *endpoints);

#endif
