/* SPDX-License-Identifier: Apache-2.0 */
/* Retry policy: backoff, and the meaning of ClickHouse's answers for a batch. */
#ifndef UNDERSPAN_PIPELINE_SINK_RETRY_H
#define UNDERSPAN_PIPELINE_SINK_RETRY_H

#include "clickhouse/client.h"
#include "pipeline/sink/sink.h"

/* Backoff after a failure, from the previous wait (0: first failure). */
uint64_t retry_wait(uint64_t wait_before_ns, enum send_result result);

/*
 * `wait` with 25 % jitter, since many agents lose a server at the same moment. At least the
 * server's Retry-After, bounded.
 */
uint64_t retry_jitter(uint64_t wait_ns, uint64_t retry_after_ns);

/* Whether the failed INSERT may have been executed. */
bool retry_is_unknown(int err, const struct clickhouse_reply *reply);

/* Result of an INSERT for which clickhouse_insert() returned `err` != 0. */
enum send_result retry_verdict(int err, const struct clickhouse_reply *reply);

#endif
