/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the requests of a store. */
#ifndef UNDERSPAN_STORE_REQUEST_CONTEXT_H
#define UNDERSPAN_STORE_REQUEST_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "store/body.h"
#include "store/clients.h"
#include "store/engine.h"

/* Shared by all requests; read-only except budget and counters. */
struct request_context {
	struct engine *engine;
	struct clients *clients;
	const char *password;
	const char *hostname;
	unsigned int client_timeout_s;
	struct body_budget budget;
	atomic_bool stopping;
	atomic_uint active; /* requests in progress */
};

#endif
