/* SPDX-License-Identifier: Apache-2.0 */
/* The spans of a trace for `underspan explain`. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_SPANS_H
#define UNDERSPAN_COMMANDS_EXPLAIN_SPANS_H

#include <jansson.h>

#include "clickhouse/client.h"

enum { SPANS_SHOWN = 1000 }; /* as in sql/explain/spans.sql */

/* Rows of explain/spans.sql. NO_SUCH_TABLE: there is no view otel_span. */
int explain_find_spans(struct clickhouse_client *client, const char *trace_id, json_t **ret_spans,
		       struct why *why);

/*
 * Server spans without "request_id" (a request of the ledger): attaches the row of
 * request_time_parts as "request", and "handoff", "gc", "throttle" and "waits", rows of
 * sql/explain/.
 */
int explain_span_parts(struct clickhouse_client *client, const char *trace_id, json_t *spans,
		       struct why *why);

#endif
