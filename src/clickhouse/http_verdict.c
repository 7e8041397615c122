// SPDX-License-Identifier: Apache-2.0
/* What the end of an exchange with ClickHouse means. See http_verdict.h. */
#include "clickhouse/http_verdict.h"

#include <ctype.h>
#include <string.h>

#include "clickhouse/advice.h"
#include "clickhouse/exceptions.h"

bool http_is_cancelled(const struct clickhouse_client *c)
{
	return atomic_load(&c->cancelled) || (c->give_up && c->give_up()) ||
	       (c->parent && http_is_cancelled(c->parent));
}

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

/* Marked exceptions are at the end: find_late_exception(). */
void http_look_for_exception(struct exchange *x, const char *bytes, size_t len)
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

bool http_is_of_another_server(const struct exchange *x)
{
	size_t spaces = 0;

	while (spaces < x->head_len && isspace((unsigned char)x->head[spaces]))
		spaces++;
	return x->on_bytes && x->reply->http_status == 200 && !x->reply->from_clickhouse &&
	       spaces < x->head_len && x->head[spaces] == '<';
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
	if (http_is_cancelled(c))
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

	if (http_is_of_another_server(x))
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

int http_conclude(CURLcode code, struct exchange *x, long sent, const char *said, struct why *why)
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
	if (code != CURLE_OK && !http_is_of_another_server(x))
		return transport_error(code, x, sent, said, why);
	return check_status(x, why);
}
