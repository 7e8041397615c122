/* SPDX-License-Identifier: Apache-2.0 */
/* What a request's URL and headers ask for beside the statement. */
#ifndef UNDERSPAN_STORE_PARAMETERS_H
#define UNDERSPAN_STORE_PARAMETERS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "store/dialect.h"
#include "store/engine.h"

/* Texts point into the connection's memory and live as long as the request. */
struct parameters {
	struct text sql, database, default_format, query_id, readonly;
	bool wait_end, gzip;
	struct engine_params values; /* of {name:Type} placeholders */
	char *settings;		     /* "SET `a` = 'x', ...", NULL: none */
	size_t settings_len;
	size_t settings_size; /* allocated */
	struct failure failure;
};

/* `read_only`: the engine shall refuse to change anything. Errors go to `failure`. */
void parameters_read(struct parameters *p, struct MHD_Connection *connection, bool read_only);
void parameters_free(struct parameters *p);

bool text_is(struct text t, const char *s);

#endif
