/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the end of an exchange with ClickHouse means: an exception, the text of an HTTP status, a
 * failed connection, a server of another kind; with the sentence for the user.
 */
#ifndef UNDERSPAN_CLICKHOUSE_HTTP_VERDICT_H
#define UNDERSPAN_CLICKHOUSE_HTTP_VERDICT_H

#include "clickhouse/http_exchange.h"

/* Also with the client for which this client asks. */
bool http_is_cancelled(const struct clickhouse_client *client);

/* For each piece of a body, before the bytes are in the tail. */
void http_look_for_exception(struct exchange *x, const char *bytes, size_t len);

/* A web page answers a question: it is not the caller's. */
bool http_is_of_another_server(const struct exchange *x);

/* The error of the exchange, or 0: see client.h. `sent`: bytes; `said`: by libcurl. */
int http_conclude(CURLcode code, struct exchange *x, long sent, const char *said, struct why *why);

#endif
