/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a query from URL and headers: settings, format, placeholders. */
#ifndef UNDERSPAN_STORE_PARAMETERS_H
#define UNDERSPAN_STORE_PARAMETERS_H

#include <microhttpd.h>
#include <stdbool.h>

#include "store/dialect.h"
#include "store/engine.h"

/* Texts point into the connection's memory; valid during the request. */
struct parameters {
	struct text sql, database, default_format, query_id, readonly;
	char id[256]; /* query id: of the client, or generated */
	bool wait_end, gzip, reads_only;
	struct engine_params values; /* of {name:Type} placeholders */
	char *settings;		     /* "SET `a` = 'x', ...", NULL: none */
	size_t settings_len;
	size_t settings_size; /* allocated */
	struct failure failure;
};

/* `read_only`: the engine must refuse writes. Errors are stored in `failure`. */
void parameters_read(struct parameters *p, struct MHD_Connection *connection, bool read_only);
void parameters_free(struct parameters *p);

bool text_is(struct text t, const char *s);

#endif
