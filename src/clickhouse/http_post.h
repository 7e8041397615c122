/* SPDX-License-Identifier: Apache-2.0 */
/* POST and GET to ClickHouse: libcurl options, response. */
#ifndef UNDERSPAN_CLICKHOUSE_HTTP_POST_H
#define UNDERSPAN_CLICKHOUSE_HTTP_POST_H

#include "clickhouse/http_exchange.h"

/* State shared by consecutive requests; NULL: out of memory. */
CURLSH *http_connections(void);

/* Errors as in clickhouse_query(). */
int http_post(struct exchange *x, const char *url, struct curl_slist *headers, const void *body,
	      size_t len, struct why *why);
int http_get(struct exchange *x, const char *url, struct why *why);

#endif
