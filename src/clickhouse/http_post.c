// SPDX-License-Identifier: Apache-2.0
/* POST and GET to ClickHouse. See http_post.h. */
#include "clickhouse/http_post.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "clickhouse/advice.h"
#include "clickhouse/exceptions.h"
#include "clickhouse/http_verdict.h"
#include "base/version.h"

static void note_answer(struct exchange *x)
{
	x->client->has_answered = true;
	x->unanswered = 0;
	x->next_look_ns = clock_monotonic_ns() + EXCHANGE_LOOK_AGAIN_NS;
}

static void keep_tail(struct exchange *x, const char *bytes, size_t len)
{
	if (len >= EXCHANGE_HEAD_BYTES) {
		memcpy(x->tail, bytes + len - EXCHANGE_HEAD_BYTES, EXCHANGE_HEAD_BYTES);
		x->tail_len = EXCHANGE_HEAD_BYTES;
	} else {
		size_t keep = x->tail_len + len > EXCHANGE_HEAD_BYTES ? EXCHANGE_HEAD_BYTES - len
								      : x->tail_len;

		memmove(x->tail, x->tail + x->tail_len - keep, keep);
		memcpy(x->tail + keep, bytes, len);
		x->tail_len = keep + len;
	}
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *context)
{
	struct exchange *x = context;
	size_t len = size * n;
	size_t head = EXCHANGE_HEAD_BYTES - x->head_len;

	if (head > len)
		head = len;
	memcpy(x->head + x->head_len, bytes, head);
	x->head_len += head;
	http_look_for_exception(x, bytes, len);
	keep_tail(x, bytes, len);
	if (http_is_of_another_server(x))
		return 0;
	/* an error's text goes to `why`, not to the caller */
	if (x->on_bytes && x->reply->http_status == 200 && !x->reply->exception_code)
		x->consumer_err = x->on_bytes(bytes, len, x->context);
	note_answer(x); /* after the time that a pager takes */
	return x->consumer_err ? 0 : len;
}

static uint64_t summary_number(const json_t *summary, const char *name)
{
	const char *text = json_string_value(json_object_get(summary, name));

	return text ? strtoull(text, NULL, 10) : 0;
}

static void take_summary(struct clickhouse_reply *reply, const char *text, size_t len)
{
	json_t *summary = json_loadb(text, len, 0, NULL);

	if (!summary)
		return;
	reply->read_rows = summary_number(summary, "read_rows");
	reply->read_bytes = summary_number(summary, "read_bytes");
	reply->written_rows = summary_number(summary, "written_rows");
	reply->written_bytes = summary_number(summary, "written_bytes");
	json_decref(summary);
}

/* Seconds; dates are ignored. Untrusted input. */
static uint64_t retry_after_ns(const char *value)
{
	size_t digits = strspn(value, "0123456789");

	if (!digits || digits > 6)
		return digits ? 999999 * NSEC_PER_SEC : 0;
	return strtoul(value, NULL, 10) * NSEC_PER_SEC;
}

/* Never 0 for a header that reports an exception. */
static int exception_number(const char *value)
{
	long code = strtol(value, NULL, 10);

	return code > 0 && code < 100000 ? (int)code : EXCEPTION_UNKNOWN_EXCEPTION;
}

static void take_field(struct exchange *x, const char *name, size_t name_len, const char *value)
{
	x->reply->from_clickhouse |= name_len > 13 && !strncasecmp(name, "X-ClickHouse-", 13);
	x->reply->from_own_store |= name_len == 17 && !strncasecmp(name, "X-Underspan-Store", 17);
	if (name_len == 27 && !strncasecmp(name, "X-ClickHouse-Exception-Code", 27))
		x->reply->exception_code = exception_number(value);
	else if (name_len == 26 && !strncasecmp(name, "X-ClickHouse-Exception-Tag", 26))
		snprintf(x->tag, sizeof(x->tag), "%.*s", EXCHANGE_TAG_MAX - 1, value);
	else if (name_len == 20 && !strncasecmp(name, "X-ClickHouse-Summary", 20))
		take_summary(x->reply, value, strlen(value));
	else if (name_len == 11 && !strncasecmp(name, "Retry-After", 11))
		x->reply->retry_after_ns = retry_after_ns(value);
	else if (name_len == 8 && !strncasecmp(name, "Location", 8))
		snprintf(x->location, sizeof(x->location), "%s", value);
}

static size_t take_header(char *bytes, size_t size, size_t n, void *context)
{
	struct exchange *x = context;
	size_t len = size * n;
	char line[1200], *value;

	note_answer(x);
	if (len >= sizeof(line)) /* too long for a relevant header */
		return len;
	memcpy(line, bytes, len); /* libcurl's buffer is not NUL-terminated */
	line[len] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	/* a new status line: discards headers of an interim response */
	if (!strncmp(line, "HTTP/", 5)) {
		value = strchr(line, ' ');
		x->reply->http_status = value ? strtol(value, NULL, 10) : 0;
		return len;
	}
	value = strchr(line, ':');
	if (!value)
		return len;
	len = (size_t)(value - line);
	value++;
	value += strspn(value, " ");
	take_field(x, line, len, value);
	return size * n;
}

/*
 * A question may run for hours without a byte. So a silent server is asked beside it whether it
 * answers anything: one that never answered this client at once, one that did with more patience,
 * as a server at its limit of connections works on.
 */
static bool is_deaf(struct exchange *x)
{
	struct clickhouse_client *c = x->client;

	if (!x->answers || clock_monotonic_ns() < x->next_look_ns)
		return false;
	if (x->answers(c)) {
		c->has_answered = true;
		x->unanswered = 0;
	} else {
		x->unanswered++;
	}
	x->next_look_ns = clock_monotonic_ns() + EXCHANGE_LOOK_AGAIN_NS;
	x->deaf = x->unanswered >= (c->has_answered ? EXCHANGE_UNANSWERED_MAX : 1);
	return x->deaf && !http_is_cancelled(c);
}

static int look_around(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct exchange *x = context;

	(void)a, (void)b, (void)c, (void)d;
	return http_is_cancelled(x->client) || is_deaf(x);
}

enum { CONNECTION_MAX_SECONDS = 300, KEEPALIVE_SECONDS = 10 };

CURLSH *http_connections(void)
{
	CURLSH *share = curl_share_init();

	/* no locks: a client is used by one thread at a time */
	if (share) {
		curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT);
		curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
		curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
	}
	return share;
}

#if LIBCURL_VERSION_NUM >= 0x075000
/* libcurl silently repeats a request lost on a reused connection: counts requests. */
static int count_request(void *context, char *peer, char *local, int peer_port, int local_port)
{
	struct exchange *x = context;

	(void)peer, (void)local, (void)peer_port, (void)local_port;
	x->reply->requests++;
	return CURL_PREREQFUNC_OK;
}
#endif

/* Where the connection goes, how it is secured, how long it is kept. */
static void set_connection(const struct clickhouse_client *c, CURL *curl)
{
	curl_easy_setopt(curl, CURLOPT_SHARE, c->connections);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
	if (c->patient) { /* the only way to detect a vanished server */
		curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_SECONDS);
		curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_SECONDS);
	}
#if LIBCURL_VERSION_NUM >= 0x075700
	/* a hanging name look-up is abandoned with its thread */
	curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	/* certificates are verified (libcurl's default); redirects are not followed (likewise) */
	if (c->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, c->ca_file);
	if (c->cert_file)
		curl_easy_setopt(curl, CURLOPT_SSLCERT, c->cert_file);
	if (c->key_file)
		curl_easy_setopt(curl, CURLOPT_SSLKEY, c->key_file);
#if LIBCURL_VERSION_NUM >= 0x075000
	/* notices that a name has moved to another machine while the old machine still answers */
	curl_easy_setopt(curl, CURLOPT_MAXLIFETIME_CONN, (long)CONNECTION_MAX_SECONDS);
#endif
	if (c->unix_socket)
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, c->unix_socket);
	if (clickhouse_is_loopback(c->url))
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

static void set_options(struct exchange *x, CURL *curl, char *said)
{
	const struct clickhouse_client *c = x->client;

	set_connection(c, curl);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, said);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "underspan/" UNDERSPAN_VERSION);
#if LIBCURL_VERSION_NUM >= 0x075000
	curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, count_request);
	curl_easy_setopt(curl, CURLOPT_PREREQDATA, x);
#endif
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)(c->connect_timeout_ns / NSEC_PER_MSEC));
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(c->timeout_ns / NSEC_PER_MSEC));
	if (c->stall_timeout_ns) {
		curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
				 (long)((c->stall_timeout_ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC));
	}
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_around);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, x);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

/*
 * A new handle per request: libcurl 7.88 keeps a dangling pointer to the last header of the
 * previous response, read if the next response starts with a folded header line.
 */
static int perform(struct exchange *x, const char *url, struct curl_slist *headers,
		   const void *body, size_t len, struct why *why)
{
	char said[CURL_ERROR_SIZE] = "";
	CURL *curl = curl_easy_init();
	long sent = 0;
	int err;

	if (!curl)
		return why_fail(why, ENOMEM, "out of memory");
	x->next_look_ns = clock_monotonic_ns() + EXCHANGE_SILENCE_NS;
	set_options(x, curl, said);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	if (body) {
		curl_easy_setopt(curl, CURLOPT_POST, 1L);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	}
	err = (int)curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
	curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &x->tunnel_status);
	err = http_conclude((CURLcode)err, x, sent, said, why);
	curl_easy_cleanup(curl);
	return err;
}

int http_post(struct exchange *x, const char *url, struct curl_slist *headers, const void *body,
	      size_t len, struct why *why)
{
	return perform(x, url, headers, body, len, why);
}

int http_get(struct exchange *x, const char *url, struct why *why)
{
	return perform(x, url, NULL, NULL, 0, why);
}
