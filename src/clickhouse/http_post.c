// SPDX-License-Identifier: Apache-2.0
/* POST and GET to ClickHouse. See http_post.h. */
#include "clickhouse/http_post.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "clickhouse/advice.h"
#include "clickhouse/exceptions.h"
#include "base/version.h"

static void keep_sentence(struct clickhouse_reply *reply, const char *text, size_t len)
{
	while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
		len--;
	if (len >= sizeof(reply->message))
		len = sizeof(reply->message) - 1;
	memcpy(reply->message, text, len);
	reply->message[len] = '\0';
}

/*
 * An error after HTTP 200 of servers before 25.11 and proxies: the text may be anywhere in the
 * body. Only if no rows are expected, which could contain such a text.
 */
static bool find_unmarked_exception(struct exchange *x, const char *bytes, size_t len)
{
	static const char word[] = "DB::Exception", code[] = "Code: ";
	const char *end = bytes + len, *at = memmem(bytes, len, word, sizeof(word) - 1);
	const char *begin = at;

	if (!at)
		return false;
	for (const char *p = at; p > bytes && *p != '\n' && begin == at; p--) {
		if (!memcmp(p - 1, code, sizeof(code) - 1))
			begin = p - 1;
	}
	x->reply->exception_code = clickhouse_exception_code(begin, (size_t)(end - begin))
					   ?: EXCEPTION_UNKNOWN_EXCEPTION;
	keep_sentence(x->reply, begin, (size_t)(end - begin));
	return true;
}

/* Before the bytes are in the tail. Marked exceptions are at the end: find_late_exception(). */
static void look_for_exception(struct exchange *x, const char *bytes, size_t len)
{
	enum { PIECE = 600 }; /* for a text in two packets */
	char seam[2 * PIECE];
	size_t before = x->tail_len < PIECE ? x->tail_len : PIECE;
	size_t after = len < PIECE ? len : PIECE;

	if (x->on_bytes || x->reply->http_status != 200 || x->reply->exception_code || *x->tag)
		return;
	memcpy(seam, x->tail + x->tail_len - before, before);
	memcpy(seam + before, bytes, after);
	x->found = find_unmarked_exception(x, seam, before + after) ||
		   find_unmarked_exception(x, bytes, len);
}

/* A web page answers a question: it is not the caller's. */
static bool is_of_another_server(const struct exchange *x)
{
	size_t spaces = 0;

	while (spaces < x->head_len && isspace((unsigned char)x->head[spaces]))
		spaces++;
	return x->on_bytes && x->reply->http_status == 200 && !x->reply->from_clickhouse &&
	       spaces < x->head_len && x->head[spaces] == '<';
}

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
	look_for_exception(x, bytes, len);
	keep_tail(x, bytes, len);
	if (is_of_another_server(x))
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

static bool is_cancelled(const struct clickhouse_client *c)
{
	return atomic_load(&c->cancelled) || (c->give_up && c->give_up()) ||
	       (c->parent && is_cancelled(c->parent));
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
	return x->deaf && !is_cancelled(c);
}

static int look_around(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct exchange *x = context;

	(void)a, (void)b, (void)c, (void)d;
	return is_cancelled(x->client) || is_deaf(x);
}

/* An error after HTTP 200 is between marks at the end of the body. */
static void find_late_exception(struct exchange *x)
{
	static const char mark[] = "\r\n__exception__\r\n";
	char start[sizeof(mark) + EXCHANGE_TAG_MAX + 2];
	const char *at, *end;
	size_t left;
	int n;

	if (!*x->tag)
		return;
	n = snprintf(start, sizeof(start), "%s%s\r\n", mark, x->tag);
	at = memmem(x->tail, x->tail_len, start, (size_t)n);
	if (!at)
		return;
	at += n;
	left = (size_t)(x->tail + x->tail_len - at);
	x->reply->exception_code = clickhouse_exception_code(at, left)
					   ?: EXCEPTION_UNKNOWN_EXCEPTION;
	/* after the text: its length, the tag and the mark */
	end = memmem(at, left, mark, sizeof(mark) - 1);
	if (end)
		left = (size_t)(end - at);
	end = memrchr(at, '\n', left);
	keep_sentence(x->reply, at, end ? (size_t)(end - at) : left);
}

#define IS_THAT_CLICKHOUSE "is that ClickHouse? Its HTTP port is 8123 by default (https: 8443)"

/* The proxy's answer to CONNECT. */
static bool refused_by_proxy(const struct exchange *x, struct why *why)
{
	char text[500];

	if (!clickhouse_say_proxy(x->tunnel_status, x->client->url, text, sizeof(text)))
		return false;
	why_fail(why, ECONNREFUSED, "ClickHouse at %.120s: %s", x->client->url, text);
	return true;
}

static int transport_error(CURLcode code, struct exchange *x, long sent, const char *said,
			   struct why *why)
{
	struct clickhouse_client *c = x->client;
	int err;

	if (x->consumer_err)
		return why_fail(why, -x->consumer_err, "cannot keep ClickHouse's answer: %s",
				strerror(-x->consumer_err));
	if (is_cancelled(c))
		return why_fail(why, ECANCELED, "ClickHouse at %.120s: no answer in time", c->url);
	if (x->deaf)
		return why_fail(why, ETIMEDOUT,
				"ClickHouse at %.120s takes connections, and does not answer, not "
				"even GET /ping in %d s: " IS_THAT_CLICKHOUSE
				"; if it is, the server hangs: see its log",
				c->url, EXCHANGE_PING_S);
	if (refused_by_proxy(x, why))
		return -ECONNREFUSED;
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		err = ETIMEDOUT;
		break;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
		err = ECONNREFUSED;
		break;
	case CURLE_OUT_OF_MEMORY:
		err = ENOMEM;
		break;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
		err = ECONNRESET;
		break;
	default:
		err = sent ? ECONNRESET : EBADMSG;
	}
	if (!said || !*said)
		said = curl_easy_strerror(code);
	keep_sentence(x->reply, said, strlen(said));
	return why_fail(why, err, "ClickHouse at %.120s: %.300s%s", c->url, said,
			clickhouse_advice_for_failure(code, c->url, said));
}

/* Of a service with another protocol over HTTP, such as OTLP. */
static bool is_binary(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < ' ' && !isspace((unsigned char)*text))
			return true;
	}
	return false;
}

/* An answer that reports no exception; 0: ClickHouse's to a question, or anyone's to another
 * request. */
static int check_status(const struct exchange *x, struct why *why)
{
	const struct clickhouse_reply *r = x->reply;
	const char *url = x->client->url;
	char by_proxy[500];

	if (is_of_another_server(x))
		return why_fail(why, EREMOTEIO,
				"%.100s answered with a web page: " IS_THAT_CLICKHOUSE, url);
	if (r->http_status == 200)
		return 0;
	if (r->http_status / 100 == 3 && *x->location)
		return why_fail(why, EREMOTEIO,
				"%.100s answered HTTP %ld, a redirect to %.200s, which is not "
				"followed: give the address that answers",
				url, r->http_status, x->location);
	if (!r->from_clickhouse && !r->from_own_store &&
	    (!*r->message || *r->message == '<' || r->http_status == 407) &&
	    clickhouse_say_proxy(r->http_status, url, by_proxy, sizeof(by_proxy)))
		return why_fail(why, EREMOTEIO, "ClickHouse at %.100s: %s", url, by_proxy);
	if (*r->message == '<' || is_binary(r->message))
		return why_fail(why, EREMOTEIO,
				"%.100s answered HTTP %ld with %s: " IS_THAT_CLICKHOUSE, url,
				r->http_status,
				*r->message == '<' ? "a web page" : "bytes that are no text");
	return why_fail(why, EREMOTEIO, "%.100s answered HTTP %ld: %.300s%s", url, r->http_status,
			*r->message ? r->message : "(no text)",
			clickhouse_advice_for_status(r->http_status, url));
}

static int conclude(CURLcode code, struct exchange *x, long sent, const char *said, struct why *why)
{
	struct clickhouse_reply *r = x->reply;

	if (!r->exception_code && (r->http_status != 200 || !x->on_bytes))
		r->exception_code = clickhouse_exception_code(x->head, x->head_len);
	if (!x->found && (r->exception_code || (r->http_status && r->http_status != 200)))
		keep_sentence(r, x->head, x->head_len);
	else if (!x->found)
		find_late_exception(x);
	if (!r->exception_code && !x->on_bytes && r->http_status == 200 &&
	    !find_unmarked_exception(x, x->head, x->head_len))
		find_unmarked_exception(x, x->tail, x->tail_len);
	if (r->exception_code)
		return *r->message ? why_fail(why, EREMOTEIO, "%.400s%s", r->message,
					      clickhouse_advice_for_exception(r->exception_code,
									      r->message))
				   : why_fail(why, EREMOTEIO, "Code: %d, and no text",
					      r->exception_code);
	if (code != CURLE_OK && !is_of_another_server(x))
		return transport_error(code, x, sent, said, why);
	return check_status(x, why);
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
	err = conclude((CURLcode)err, x, sent, said, why);
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
