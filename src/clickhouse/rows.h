/* SPDX-License-Identifier: Apache-2.0 */
/* The complete answer of a query as JSON rows. */
#ifndef UNDERSPAN_CLICKHOUSE_ROWS_H
#define UNDERSPAN_CLICKHOUSE_ROWS_H

#include <jansson.h>

#include "clickhouse/client.h"

/*
 * As clickhouse_query_text(), with the answer parsed: `format` is "JSON" (rows are objects) or
 * "JSONCompact" (arrays). *ret_rows: an array to be released by the caller; unchanged on errors.
 */
int clickhouse_query_rows(struct clickhouse_client *client, const char *sql, const char *format,
			  const struct clickhouse_param *params, json_t **ret_rows,
			  struct clickhouse_reply *reply, struct why *why);

#endif
