/* SPDX-License-Identifier: Apache-2.0 */
/* When to try again, and what an answer of ClickHouse means for the batch that it is about. */
#ifndef UNDERSPAN_RETRY_H
#define UNDERSPAN_RETRY_H

#include "clickhouse/client.h"
#include "pipeline/sink.h"

/* How long to wait after a failure, given the wait before (0: it is the first). */
uint64_t retry_wait(uint64_t wait_before_ns, enum send_result result);

/*
 * `wait` with a quarter up or down: many agents lose and find the same server together. At least
 * what the server asks for, within reason.
 */
uint64_t retry_jitter(uint64_t wait_ns, uint64_t retry_after_ns);

/* Of an INSERT that returned `err` (clickhouse_insert()) and not 0. */
enum send_result retry_verdict(int err, const struct clickhouse_reply *reply);

#endif
