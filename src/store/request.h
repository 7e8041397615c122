/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request: who asks, what is asked, and the answer to it. */
#ifndef UNDERSPAN_STORE_REQUEST_H
#define UNDERSPAN_STORE_REQUEST_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "store/body.h"
#include "store/engine.h"
#include "util.h"

/* What requests share; read-only but for the budget and the counters. */
struct request_context {
	struct engine *engine;
	const char *password;
	const char *hostname;
	unsigned int client_timeout_s;
	struct body_budget budget;
	atomic_bool stopping;
	atomic_uint active; /* requests that have begun and not ended */
};

/* microhttpd's callbacks; the context is `cls` */
enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
			       const char *method, const char *version, const char *upload,
			       size_t *upload_size, void **request_cls);
void request_completed(void *cls, struct MHD_Connection *connection, void **request_cls,
		       enum MHD_RequestTerminationCode how);

#endif
