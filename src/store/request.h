/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request: authentication, routing, body, response. */
#ifndef UNDERSPAN_STORE_REQUEST_H
#define UNDERSPAN_STORE_REQUEST_H

#include <microhttpd.h>

#include "store/request_context.h"

/* microhttpd's callbacks; the context is `cls` */
enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
			       const char *method, const char *version, const char *upload,
			       size_t *upload_size, void **request_cls);
void request_completed(void *cls, struct MHD_Connection *connection, void **request_cls,
		       enum MHD_RequestTerminationCode how);

#endif
