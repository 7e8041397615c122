/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a table's INSERTs may use async_insert. Without deduplication of asynchronous INSERTs, a
 * lost answer would double a batch, or drop rows of other agents. Sender thread only.
 */
#ifndef UNDERSPAN_PIPELINE_SINK_ASYNC_INSERT_H
#define UNDERSPAN_PIPELINE_SINK_ASYNC_INSERT_H

#include <stdbool.h>

#include "clickhouse/client.h"
#include "base/util.h"

struct async_insert;

struct async_insert *async_insert_new(void); /* NULL: out of memory */
void async_insert_free(struct async_insert *async);

/*
 * Asks `client` once per table; logs a refusal once. Errors of clickhouse_query(): not known so
 * far.
 */
int async_insert_allowed(struct async_insert *async, struct clickhouse_client *client,
			 const char *insert, bool *ret_allowed, struct clickhouse_reply *reply,
			 struct why *why);

/*
 * NULL: tables of this engine deduplicate asynchronous INSERTs; otherwise the reason for the
 * refusal. `version`: "25.3.1.1". `own_store`: the embedded store, which does not batch INSERTs.
 */
const char *async_insert_refusal(const char *engine, const char *version, bool own_store);

#endif
