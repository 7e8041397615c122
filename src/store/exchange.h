/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request and its answer, common to both servers of the store: the life between
 * microhttpd's calls, the body, and the bytes that are read from a client only to be dropped.
 */
#ifndef UNDERSPAN_STORE_EXCHANGE_H
#define UNDERSPAN_STORE_EXCHANGE_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "store/body.h"
#include "store/clients.h"

/* First member of a server's request. */
struct exchange {
	struct client *client;
	struct body body;
	bool drains;	    /* refused, or without a body: what arrives is dropped */
	size_t max_drained; /* then the connection is closed; clients read an answer afterwards */
	size_t drained;
	bool answered;
};

/* One kind of server: its requests. */
struct exchange_kind {
	size_t size; /* of a request */
	void (*init)(struct exchange *e, void *server);
	/* The head: sets `drains` or begins the body, or answers. */
	enum MHD_Result (*begin)(struct exchange *e, struct MHD_Connection *c, const char *url,
				 const char *method);
	/* The body is refused with `err` of body_append(): sets `drains`. */
	void (*refuse_body)(struct exchange *e, int err);
	enum MHD_Result (*answer)(struct exchange *e, struct MHD_Connection *c, const char *url,
				  const char *method);
};

/* For microhttpd's callbacks; `active` counts the requests in progress. */
enum MHD_Result exchange_handle(const struct exchange_kind *kind, void *server, atomic_uint *active,
				struct MHD_Connection *c, const char *url, const char *method,
				const char *upload, size_t *upload_size, void **request_cls);
void exchange_completed(atomic_uint *active, void **request_cls);

/* Whether the announced body is longer than what is drained: answered at once. */
bool exchange_is_too_long(const struct exchange *e, struct MHD_Connection *c);

/* Queues the answer, and takes over `response`; NULL: out of memory. */
enum MHD_Result exchange_respond(struct exchange *e, struct MHD_Connection *c, unsigned int status,
				 struct MHD_Response *response);

#endif
