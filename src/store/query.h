/* SPDX-License-Identifier: Apache-2.0 */
/* From a request's parameters and body to the engine and back to a response. */
#ifndef UNDERSPAN_STORE_QUERY_H
#define UNDERSPAN_STORE_QUERY_H

#include <microhttpd.h>

#include "store/dialect.h"
#include "store/request.h"

/* The response to a failure: status by its code, X-ClickHouse-Exception-Code, the text. */
struct MHD_Response *failure_response(const struct request_context *context, const char *error,
				      unsigned int *ret_status);

/*
 * Runs what the URL's parameters and the body ask for. Always gives a response (NULL only without
 * memory); `is_get` makes the engine refuse to change anything.
 */
struct MHD_Response *query_respond(struct request_context *context,
				   struct MHD_Connection *connection, bool is_get, struct text body,
				   unsigned int *ret_status);

#endif
