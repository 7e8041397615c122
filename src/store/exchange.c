// SPDX-License-Identifier: Apache-2.0
/* One HTTP request and its answer. See exchange.h. */
#include "store/exchange.h"

#include <stdlib.h>

static enum MHD_Result take_upload(const struct exchange_kind *kind, struct exchange *e,
				   const char *upload, size_t *upload_size)
{
	size_t n = *upload_size;
	int err;

	*upload_size = 0;
	client_sends(e->client, n);
	if (e->drains) {
		e->drained += n;
		return e->drained > e->max_drained ? MHD_NO : MHD_YES;
	}
	err = body_append(&e->body, upload, n);
	if (err)
		kind->refuse_body(e, err);
	return MHD_YES;
}

enum MHD_Result exchange_handle(const struct exchange_kind *kind, void *server, atomic_uint *active,
				struct MHD_Connection *c, const char *url, const char *method,
				const char *upload, size_t *upload_size, void **request_cls)
{
	struct exchange *e = *request_cls;

	if (!e) {
		e = client_of(c) ? calloc(1, kind->size) : NULL;
		if (!e)
			return MHD_NO;
		e->client = client_of(c);
		kind->init(e, server);
		*request_cls = e;
		atomic_fetch_add(active, 1);
		return kind->begin(e, c, url, method);
	}
	if (e->answered)
		return MHD_NO;
	return *upload_size ? take_upload(kind, e, upload, upload_size)
			    : kind->answer(e, c, url, method);
}

void exchange_completed(atomic_uint *active, void **request_cls)
{
	struct exchange *e = *request_cls;

	if (!e)
		return;
	client_done(e->client);
	body_free(&e->body);
	free(e);
	*request_cls = NULL;
	atomic_fetch_sub(active, 1);
}

bool exchange_is_too_long(const struct exchange *e, struct MHD_Connection *c)
{
	const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

	return length && strtoull(length, NULL, 10) > e->max_drained;
}

enum MHD_Result exchange_respond(struct exchange *e, struct MHD_Connection *c, unsigned int status,
				 struct MHD_Response *response)
{
	enum MHD_Result queued;

	if (!response)
		return MHD_NO;
	queued = MHD_queue_response(c, status, response);
	MHD_destroy_response(response);
	e->answered = true;
	return queued;
}
