// SPDX-License-Identifier: Apache-2.0
/* The HTTP side of OTLP. See receiver.h. */
#include "store/otlp/receiver.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "clickhouse/exceptions.h"
#include "store/body.h"
#include "store/clients.h"
#include "store/dialect.h"
#include "store/exchange.h"
#include "store/otlp/insert.h"
#include "store/otlp/traces.h"

enum {
	MAX_BODY_BYTES = 16 << 20, /* unpacked */
	MAX_BODIES_BYTES = 4 * MAX_BODY_BYTES,
	MAX_HEAD_BYTES = 64 << 10,
	MAX_DRAINED_BYTES =
		1 << 20, /* of a refused body: many clients read the answer afterwards */
	LOG_INTERVAL_S = 60,
	LISTEN_BACKLOG = 128,
};

struct otlp_receiver {
	struct MHD_Daemon *daemon;
	struct engine *engine;
	struct clients *clients;
	struct body_budget budget;
	char *password;
	unsigned int timeout_s;
	atomic_bool stopping;
	atomic_uint active;	  /* requests in progress */
	pthread_mutex_t decoding; /* one request at a time: memory stays below one limit */
	atomic_ulong stored, rejected, refused; /* spans, spans, requests */
	atomic_ullong last_log_ns;
};

struct request {
	struct exchange exchange; /* first */
	struct otlp_receiver *receiver;
	enum otlp_encoding encoding;
	unsigned int status; /* of a refusal; 0: none */
	struct why why;
};

static struct request *request_of(struct exchange *e)
{
	return (struct request *)e;
}

static void refuse(struct request *r, unsigned int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void refuse(struct request *r, unsigned int status, const char *fmt, ...)
{
	va_list ap;

	if (r->status)
		return;
	r->status = status;
	r->exchange.drains = true;
	va_start(ap, fmt);
	vsnprintf(r->why.text, sizeof(r->why.text), fmt, ap);
	va_end(ap);
}

static const char *header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* ---- the head ---- */

static bool is_media_type(const char *type, const char *expected)
{
	size_t n = strlen(expected);

	return type && !strncasecmp(type, expected, n) && (!type[n] || strchr("; \t", type[n]));
}

static void check_password(struct request *r, struct MHD_Connection *c)
{
	const char *basic = header(c, "Authorization");
	char user[256], password[256];

	if (!r->receiver->password)
		return;
	if (!basic || !parse_basic_auth(basic, user, sizeof(user), password, sizeof(password)) ||
	    !same_secret(password, r->receiver->password))
		refuse(r, 401,
		       "this store listens beyond loopback and asks for its password: "
		       "OTEL_EXPORTER_OTLP_HEADERS='Authorization=Basic "
		       "<base64 of default:PASSWORD>', PASSWORD from the file 'password' of the "
		       "store's directory");
}

static void check_head(struct request *r, struct MHD_Connection *c, const char *url,
		       const char *method)
{
	const char *type = header(c, "Content-Type"), *length = header(c, "Content-Length");
	const char *packed = header(c, "Content-Encoding");

	r->encoding = is_media_type(type, "application/json") ? OTLP_JSON : OTLP_PROTOBUF;
	check_password(r, c);
	if (!strcmp(url, "/v1/metrics") || !strcmp(url, "/v1/logs"))
		refuse(r, 404,
		       "this store takes traces only: set OTEL_%s_EXPORTER=none in the service",
		       url[4] == 'm' ? "METRICS" : "LOGS");
	else if (strcmp(url, "/v1/traces") != 0)
		refuse(r, 404, "no such path; POST traces to /v1/traces");
	else if (strcmp(method, "POST") != 0)
		refuse(r, 405, "use POST");
	else if (r->encoding == OTLP_PROTOBUF && !is_media_type(type, "application/x-protobuf"))
		refuse(r, 415,
		       "Content-Type '%.60s': send application/x-protobuf or application/json "
		       "(OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf)",
		       type ?: "");
	else if (body_encoding_parse(packed) == BODY_UNKNOWN)
		refuse(r, 415, "Content-Encoding '%.40s': send gzip, deflate or none", packed);
	else if (length && strtoull(length, NULL, 10) > MAX_BODY_BYTES)
		refuse(r, 413, "%.20s bytes, over the limit of %d; send fewer spans", length,
		       MAX_BODY_BYTES);
	else if (atomic_load(&r->receiver->stopping))
		refuse(r, 503, "the store is shutting down");
	else if (body_begin(&r->exchange.body, &r->receiver->budget, body_encoding_parse(packed)) <
		 0)
		refuse(r, 503, "out of memory");
}

/* ---- the body ---- */

static void refuse_body(struct exchange *e, int err)
{
	struct request *r = request_of(e);

	switch (err) {
	case -EFBIG:
		refuse(r, 413, "over the limit of %d bytes, unpacked; send fewer spans",
		       MAX_BODY_BYTES);
		break;
	case -EBADMSG:
		refuse(r, 400, "the body is not what its Content-Encoding says, or is cut short");
		break;
	default: /* -ENOBUFS, -ENOMEM */
		refuse(r, 503, "too many requests at a time; try again");
	}
	body_free(&e->body);
}

/* ---- the answer ---- */

/* False: a line of this kind was logged within the last minute. */
static bool may_log(struct otlp_receiver *o)
{
	unsigned long long last = atomic_load(&o->last_log_ns), now = clock_monotonic_ns();

	return (!last || now - last > LOG_INTERVAL_S * NSEC_PER_SEC) &&
	       atomic_compare_exchange_strong(&o->last_log_ns, &last, now);
}

static void count(struct request *r, const struct otlp_result *result)
{
	struct otlp_receiver *o = r->receiver;

	atomic_fetch_add(&o->stored, r->status ? 0 : result->accepted);
	atomic_fetch_add(&o->rejected, r->status ? 0 : result->rejected);
	atomic_fetch_add(&o->refused, r->status != 0);
	if ((r->status || result->rejected) && may_log(o))
		log_warn("store: OTLP: %s: %s (so far %lu span%s rejected, %lu request%s refused)",
			 r->status ? "a request refused" : "a span rejected",
			 r->status ? r->why.text : result->why.text, atomic_load(&o->rejected),
			 plural(atomic_load(&o->rejected)), atomic_load(&o->refused),
			 plural(atomic_load(&o->refused)));
}

/* Failures after which OTLP lets the client repeat: 503. */
static void fail_insert(struct request *r, int code, const struct why *why)
{
	bool bad = exception_verdict(code) == BAD_ROWS ||
		   (code == EXCEPTION_TOO_MANY_PARTS && strstr(why->text, "in one request"));

	refuse(r, bad ? 400 : 503, "%.400s", why->text);
}

static void store_spans(struct request *r, struct otlp_result *result)
{
	struct body *body = &r->exchange.body;
	struct buffer rows = { 0 };
	struct why why = { { 0 } };
	int err;

	pthread_mutex_lock(&r->receiver->decoding);
	err = otlp_rows((struct text){ body->bytes ?: "", body->len }, r->encoding, &rows, result,
			&why);
	body_free(body);
	if (err)
		refuse(r, err == -EFBIG ? 413 : err == -EBADMSG ? 400 : 503, "%s", why.text);
	err = err || !rows.len ? 0
			       : otlp_insert(r->receiver->engine,
					     (struct text){ rows.data, rows.len }, &why);
	pthread_mutex_unlock(&r->receiver->decoding);
	if (err)
		fail_insert(r, err, &why);
	buffer_free(&rows);
}

static enum MHD_Result respond(struct request *r, struct MHD_Connection *c,
			       const struct otlp_result *result)
{
	struct buffer b = { 0 };
	struct MHD_Response *response;
	int err = r->status ? otlp_refusal(r->encoding, r->why.text, &b)
			    : otlp_success(r->encoding, result, &b);

	response = err ? NULL
		       : MHD_create_response_from_buffer(b.len, b.data ?: "",
							 MHD_RESPMEM_MUST_COPY);
	buffer_free(&b);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type",
				r->encoding == OTLP_JSON ? "application/json"
							 : "application/x-protobuf");
	if (r->status == 503)
		MHD_add_response_header(response, "Retry-After", "1");
	if (r->status == 405)
		MHD_add_response_header(response, "Allow", "POST");
	if (r->status == 415)
		MHD_add_response_header(response, "Accept-Encoding", "gzip, deflate");
	if (r->status == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"OTLP\"");
	if (r->status || atomic_load(&r->receiver->stopping))
		MHD_add_response_header(response, "Connection", "close");
	return exchange_respond(&r->exchange, c, r->status ?: 200, response);
}

static enum MHD_Result answer(struct exchange *e, struct MHD_Connection *c, const char *url,
			      const char *method)
{
	struct request *r = request_of(e);
	struct otlp_result result = { 0 };
	int err = r->status ? 0 : body_finish(&e->body);

	(void)url;
	(void)method;
	if (err)
		refuse_body(e, err);
	if (!r->status) {
		/* an exporter keeps the connection; a connection without a request is closed soon
		 */
		client_trust(e->client);
		client_waits(e->client);
		MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
		store_spans(r, &result);
		MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, r->receiver->timeout_s);
	}
	count(r, &result);
	return respond(r, c, &result);
}

static void init_request(struct exchange *e, void *server)
{
	request_of(e)->receiver = server;
	e->max_drained = MAX_DRAINED_BYTES;
}

static enum MHD_Result begin(struct exchange *e, struct MHD_Connection *c, const char *url,
			     const char *method)
{
	struct request *r = request_of(e);
	struct otlp_result none = { 0 };

	check_head(r, c, url, method);
	client_sends(e->client, 0);
	if (!r->status || !exchange_is_too_long(e, c))
		return MHD_YES;
	count(r, &none);
	return respond(r, c, &none);
}

static const struct exchange_kind requests = { .size = sizeof(struct request),
					       .init = init_request,
					       .begin = begin,
					       .refuse_body = refuse_body,
					       .answer = answer };

static enum MHD_Result handle(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **request_cls)
{
	struct otlp_receiver *o = cls;

	(void)version;
	return exchange_handle(&requests, o, &o->active, c, url, method, upload, upload_size,
			       request_cls);
}

static void completed(void *cls, struct MHD_Connection *c, void **request_cls,
		      enum MHD_RequestTerminationCode how)
{
	struct otlp_receiver *o = cls;

	(void)c;
	(void)how;
	exchange_completed(&o->active, request_cls);
}

/* ---- start and stop ---- */

static void free_receiver(struct otlp_receiver *o)
{
	clients_free(o->clients);
	if (o->password)
		explicit_bzero(o->password, strlen(o->password));
	free(o->password);
	pthread_mutex_destroy(&o->decoding);
	free(o);
}

static int start_daemon(struct otlp_receiver *o, const struct otlp_options *options,
			struct why *why)
{
	listen(options->listen_fd, LISTEN_BACKLOG);
	o->daemon = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC,
		0, NULL, NULL, handle, o, MHD_OPTION_LISTEN_SOCKET, options->listen_fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)options->max_connections,
		MHD_OPTION_CONNECTION_TIMEOUT, o->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)MAX_HEAD_BYTES, MHD_OPTION_NOTIFY_COMPLETED, completed, o,
		MHD_OPTION_NOTIFY_CONNECTION, clients_notify, o->clients, MHD_OPTION_END);
	return o->daemon ? 0
			 : why_fail(why, EIO,
				    "microhttpd cannot serve OTLP (threads or files short?)");
}

int otlp_start(const struct otlp_options *options, struct otlp_receiver **ret_receiver,
	       struct why *why)
{
	struct otlp_receiver *o = calloc(1, sizeof(*o));
	int err;

	if (!o)
		return why_fail(why, ENOMEM, "out of memory");
	arena_init_json();
	pthread_mutex_init(&o->decoding, NULL);
	o->engine = options->engine;
	o->timeout_s = (unsigned int)(options->client_timeout_ns / NSEC_PER_SEC);
	o->budget = (struct body_budget){ .max_body = MAX_BODY_BYTES,
					  .max_total = MAX_BODIES_BYTES };
	o->password = options->password ? strdup(options->password) : NULL;
	o->clients = clients_new(o->engine, options->max_connections, options->client_timeout_ns);
	if (!o->clients || (options->password && !o->password))
		err = why_fail(why, ENOMEM, "out of memory or threads");
	else
		err = otlp_create_tables(o->engine, why);
	err = err ?: start_daemon(o, options, why);
	if (err)
		free_receiver(o);
	else
		*ret_receiver = o;
	return err;
}

bool otlp_stop(struct otlp_receiver *o, uint64_t grace_ns)
{
	const struct timespec tick = { .tv_nsec = 20 * NSEC_PER_MSEC };
	MHD_socket fd;

	if (!o)
		return true;
	fd = MHD_quiesce_daemon(o->daemon);
	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	atomic_store(&o->stopping, true);
	for (uint64_t waited = 0; atomic_load(&o->active) > 0; waited += tick.tv_nsec) {
		if (waited >= grace_ns)
			return false;
		nanosleep(&tick, NULL);
	}
	MHD_stop_daemon(o->daemon);
	log_info("store: OTLP: %lu span%s stored, %lu rejected, %lu request%s refused",
		 atomic_load(&o->stored), plural(atomic_load(&o->stored)),
		 atomic_load(&o->rejected), atomic_load(&o->refused),
		 plural(atomic_load(&o->refused)));
	free_receiver(o);
	return true;
}
