/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a request's query in the engine and builds the response. */
#ifndef UNDERSPAN_STORE_QUERY_H
#define UNDERSPAN_STORE_QUERY_H

#include <microhttpd.h>

#include "store/dialect.h"
#include "store/request_context.h"

/* The response for a failure: status by exception code, X-ClickHouse-Exception-Code, the text. */
struct MHD_Response *failure_response(const struct request_context *context, const char *error,
				      unsigned int *ret_status);

/*
 * Runs the query of URL parameters and body. Returns a response, NULL only if out of memory.
 * `is_get`: the engine refuses writes.
 */
struct MHD_Response *query_respond(struct request_context *context,
				   struct MHD_Connection *connection, bool is_get, struct text body,
				   unsigned int *ret_status);

#endif
