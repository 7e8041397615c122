// SPDX-License-Identifier: Apache-2.0
/* One HTTP request: headers, body, response. See request.h. */
#include "store/request.h"

#include <string.h>
#include <strings.h>

#include "store/exchange.h"
#include "store/query.h"

enum {
	/*
	 * A refused body is drained, since many clients read the response only after sending. Limit
	 * for untrusted clients; trusted clients: twice the body limit.
	 */
	MAX_DRAINED_BYTES = 1 << 20,
};

struct request {
	struct exchange exchange; /* first */
	struct request_context *context;
	struct failure failure;
	bool is_plain;
};

static struct request *request_of(struct exchange *e)
{
	return (struct request *)e;
}

static const char *request_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static const char *url_parameter(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
}

/* Credentials by headers, Basic or URL parameters: exactly one kind, as in ClickHouse. */
static void authenticate(struct request *r, struct MHD_Connection *c)
{
	const char *user = request_header(c, "X-ClickHouse-User");
	const char *password = request_header(c, "X-ClickHouse-Key");
	const char *basic = request_header(c, "Authorization");
	char basic_user[256], basic_password[256];
	bool headers = user || password;
	bool right, known;

	if (headers && basic) {
		set_failure(
			&r->failure, EXCEPTION_AUTHENTICATION_FAILED,
			"Invalid authentication: it is not allowed to use X-ClickHouse HTTP headers and "
			"Authorization HTTP header simultaneously");
		return;
	}
	if (basic) {
		if (!parse_basic_auth(basic, basic_user, sizeof(basic_user), basic_password,
				      sizeof(basic_password))) {
			set_failure(
				&r->failure, EXCEPTION_AUTHENTICATION_FAILED,
				"Invalid authentication: the Authorization header is not of the form "
				"'Basic <base64 of user:password>'");
			return;
		}
		user = basic_user;
		password = basic_password;
	} else if (!headers) {
		user = url_parameter(c, "user");
		password = url_parameter(c, "password");
	}
	if (!user && !password) {
		set_failure(
			&r->failure, EXCEPTION_REQUIRED_PASSWORD,
			"default: Authentication failed: password is required; it is in the file "
			"'password' of the store's directory");
		return;
	}
	/* both are always compared: constant time */
	right = same_secret(password ?: "", r->context->password);
	known = same_secret(user && *user ? user : "default", "default");
	if (!right || !known)
		set_failure(
			&r->failure, EXCEPTION_AUTHENTICATION_FAILED,
			"%.100s: Authentication failed: password is incorrect, or there is no user "
			"with such name",
			user && *user ? user : "default");
}

static void begin_body(struct request *r, struct MHD_Connection *c)
{
	const char *encoding = request_header(c, "Content-Encoding");
	const char *length = request_header(c, "Content-Length");
	const char *type = request_header(c, "Content-Type");

	if (type && !strncasecmp(type, "multipart/form-data", 19))
		set_failure(
			&r->failure, EXCEPTION_NOT_IMPLEMENTED,
			"External tables (multipart/form-data) are not supported by this store");
	else if (body_encoding_parse(encoding) == BODY_UNKNOWN)
		set_failure(
			&r->failure, EXCEPTION_NOT_IMPLEMENTED,
			"Content-Encoding '%.40s' is not supported by this store; use gzip or deflate",
			encoding);
	else if (length && strtoull(length, NULL, 10) > r->context->budget.max_body)
		set_failure(&r->failure, EXCEPTION_QUERY_IS_TOO_LARGE,
			    "The request's body has %.20s bytes, over the limit of %zu", length,
			    r->context->budget.max_body);
	else if (body_begin(&r->exchange.body, &r->context->budget, body_encoding_parse(encoding)) <
		 0)
		set_failure(&r->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
}

static void refuse_body(struct exchange *e, int err)
{
	struct request *r = request_of(e);

	switch (err) {
	case -EFBIG:
		set_failure(&r->failure, EXCEPTION_QUERY_IS_TOO_LARGE,
			    "The request's body is over the limit of %zu bytes",
			    r->context->budget.max_body);
		break;
	case -ENOBUFS:
		set_failure(
			&r->failure, EXCEPTION_TOO_MANY_SIMULTANEOUS_QUERIES,
			"The bodies of all requests are over the limit of %zu bytes; try again later",
			r->context->budget.max_total);
		break;
	case -EBADMSG:
		set_failure(
			&r->failure, EXCEPTION_ZLIB_INFLATE_FAILED,
			"inflate failed: the body is not what its Content-Encoding says, or is cut "
			"short");
		break;
	default:
		set_failure(&r->failure, EXCEPTION_MEMORY_LIMIT_EXCEEDED, "Out of memory");
	}
	e->drains = true;
	body_free(&e->body);
}

static enum MHD_Result send_response(struct request *r, struct MHD_Connection *c,
				     struct MHD_Response *response, unsigned int status)
{
	/* no keep-alive for untrusted clients */
	if (response &&
	    (atomic_load(&r->context->stopping) || !client_is_trusted(r->exchange.client)))
		MHD_add_response_header(response, "Connection", "close");
	return exchange_respond(&r->exchange, c, status, response);
}

static enum MHD_Result send_failure(struct request *r, struct MHD_Connection *c)
{
	unsigned int status = MHD_HTTP_INTERNAL_SERVER_ERROR;
	struct MHD_Response *response = failure_response(r->context, r->failure.text, &status);

	return send_response(r, c, response, status);
}

static enum MHD_Result send_text(struct request *r, struct MHD_Connection *c, unsigned int status,
				 const char *text)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), (void *)text,
									MHD_RESPMEM_PERSISTENT);

	if (response) {
		MHD_add_response_header(response, "Content-Type", "text/html; charset=UTF-8");
		MHD_add_response_header(response, "X-ClickHouse-Server-Display-Name",
					r->context->hostname);
	}
	return send_response(r, c, response, status);
}

static bool is_read_method(const char *method)
{
	return !strcmp(method, "GET") || !strcmp(method, "HEAD");
}

/* Requests without a query, answered without credentials: /ping, /replicas_status, /. */
static bool is_plain(struct MHD_Connection *c, const char *url, const char *method)
{
	if (strcmp(url, "/") != 0 && strcmp(url, "/query") != 0)
		return true;
	if (strcmp(method, "POST") != 0)
		return !is_read_method(method) || !url_parameter(c, "query");
	return false;
}

static enum MHD_Result answer_plain(struct request *r, struct MHD_Connection *c, const char *url,
				    const char *method)
{
	bool ping = !strcmp(url, "/ping") || !strcmp(url, "/replicas_status");

	if (!ping && strcmp(url, "/") != 0 && strcmp(url, "/query") != 0)
		return send_text(r, c, 404,
				 "There is no such handler; use /, /ping or /replicas_status.\n");
	if (!is_read_method(method))
		return send_text(r, c, 405,
				 ping ? "Use GET or HEAD.\n" : "Use GET, HEAD or POST.\n");
	return send_text(r, c, 200, "Ok.\n");
}

static void init_request(struct exchange *e, void *server)
{
	request_of(e)->context = server;
}

static enum MHD_Result begin_request(struct exchange *e, struct MHD_Connection *c, const char *url,
				     const char *method)
{
	struct request *r = request_of(e);

	r->is_plain = is_plain(c, url, method);
	e->max_drained = MAX_DRAINED_BYTES;
	authenticate(r, c);
	if (!r->failure.code)
		client_trust(e->client);
	client_sends(e->client, 0);
	e->drains = r->is_plain || r->failure.code;
	if (r->is_plain)
		return MHD_YES;
	if (!r->failure.code) {
		e->max_drained = 2 * r->context->budget.max_body;
		begin_body(r, c);
	}
	if (!r->failure.code && atomic_load(&r->context->stopping))
		set_failure(&r->failure, EXCEPTION_TOO_MANY_SIMULTANEOUS_QUERIES,
			    "The store is shutting down");
	e->drains = r->failure.code != 0;
	return e->drains && exchange_is_too_long(e, c) ? send_failure(r, c) : MHD_YES;
}

static enum MHD_Result answer_query(struct request *r, struct MHD_Connection *c, const char *method)
{
	unsigned int status = MHD_HTTP_INTERNAL_SERVER_ERROR;
	struct body *body = &r->exchange.body;
	struct MHD_Response *response;
	int err = r->failure.code ? 0 : body_finish(body);

	if (err)
		refuse_body(&r->exchange, err);
	if (r->failure.code)
		return send_failure(r, c);
	client_waits(r->exchange.client);
	/* microhttpd's timeout is for slow clients, not for the engine */
	MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
	response = query_respond(r->context, c, strcmp(method, "POST") != 0,
				 (struct text){ body->bytes ?: "", body->len }, &status);
	MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, r->context->client_timeout_s);
	body_free(body);
	return send_response(r, c, response, status);
}

static enum MHD_Result answer(struct exchange *e, struct MHD_Connection *c, const char *url,
			      const char *method)
{
	struct request *r = request_of(e);

	return r->is_plain ? answer_plain(r, c, url, method) : answer_query(r, c, method);
}

static const struct exchange_kind requests = { .size = sizeof(struct request),
					       .init = init_request,
					       .begin = begin_request,
					       .refuse_body = refuse_body,
					       .answer = answer };

enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
			       const char *method, const char *version, const char *upload,
			       size_t *upload_size, void **request_cls)
{
	struct request_context *context = cls;

	(void)version;
	return exchange_handle(&requests, context, &context->active, connection, url, method,
			       upload, upload_size, request_cls);
}

void request_completed(void *cls, struct MHD_Connection *connection, void **request_cls,
		       enum MHD_RequestTerminationCode how)
{
	struct request_context *context = cls;

	(void)connection;
	(void)how;
	exchange_completed(&context->active, request_cls);
}
