// SPDX-License-Identifier: Apache-2.0
/* Heads of requests: what is known of them, and what is left open. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "rows/http_head.h"

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN   "00f067aa0ba902b7"
#define PARENT "00-" TRACE "-" SPAN "-01"
#define HOST   "Host: a\r\n"

/* From memory of exactly this size, as sanitizers want it. */
static struct http_head parse_bytes(const void *bytes, size_t n, size_t tail_at)
{
	struct http_head head;
	char *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, n);
	http_head_parse(copy, n, tail_at, &head);
	free(copy);
	return head;
}

static struct http_head parse(const char *text)
{
	return parse_bytes(text, strlen(text), strlen(text));
}

static struct http_head parse_pieces(const char *first, const char *tail)
{
	char both[4096];
	int n = snprintf(both, sizeof(both), "%s%s", first, tail);

	return parse_bytes(both, (size_t)n, strlen(first));
}

static void method_and_path(void **state)
{
	static const struct {
		const char *line, *method, *path;
	} known[] = {
		{ "GET / HTTP/1.1\r\n", "GET", "/" },
		{ "POST /a/b?token=secret HTTP/1.0\r\n", "POST", "/a/b" },
		{ "DELETE /a#b?c HTTP/1.1\r\n", "DELETE", "/a" },
		{ "PROPPATCH /%2e%3f/ HTTP/1.1\r\n", "PROPPATCH", "/%2e%3f/" },
		{ "OPTIONS * HTTP/1.1\r\n", "OPTIONS", "*" },
		{ "GET http://u:p@host:1/a/b?c HTTP/1.1\r\n", "GET", "/a/b" },
		{ "GET http://host HTTP/1.1\r\n", "GET", "/" },
		{ "GET http://host?q=/x HTTP/1.1\r\n", "GET", "/" },
		{ "GET /to/http://host/x HTTP/1.1\r\n", "GET", "/to/http://host/x" },
		{ "CONNECT host:443 HTTP/1.1\r\n", "CONNECT", "" },
		{ "GET relative HTTP/1.1\r\n", "GET", "" },
		{ "GET /old\r\n", "GET", "/old" },
		{ "GET /old\n", "GET", "/old" },
		/* the end was not seen */
		{ "GET /incompl", "GET", "" },
		{ "GET /incompl\r", "GET", "" },
		{ "GET http://host", "GET", "" },
		{ "GET /path?incompl", "GET", "/path" },
		{ "GET /path ", "GET", "/path" },
		{ "GET ", "GET", "" },
		{ "GET", "", "" },
		/* words that are none of HTTP/1 */
		{ "", "", "" },
		{ "get /\r\n", "", "" },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", "" },
		{ "ANY(THING) / HTTP/1.1\r\n", "", "" },
		/* a method that is not known has no name, but its path is taken */
		{ "get / HTTP/1.1\r\n", "", "/" },
		{ "ANYTHING /a?b HTTP/1.1\r\n", "", "/a" },
		{ "\x16\x03\x01\x02", "", "" },
		{ "\r\nGET / HTTP/1.1\r\n", "", "" },
		/* what steers a terminal */
		{ "GET /\033[2J\x9b\xc2\x9b/\xff HTTP/1.1\r\n", "GET",
		  "/?[2J?"
		  "?/?" },
		{ "GET /Zo\xc3\xab/\xf0\x9f\x90\x8d HTTP/1.1\r\n", "GET", "/Zoë/🐍" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		struct http_head head = parse(known[i].line);

		assert_string_equal(head.method, known[i].method);
		assert_string_equal(head.path, known[i].path);
		assert_string_equal(head.trace_id, "");
	}
}

static void a_path_is_bounded(void **state)
{
	char line[1024], expected[257];
	struct http_head head;

	(void)state;
	memset(line, 'a', sizeof(line));
	memcpy(line, "GET /", 5);
	memset(expected, 'a', sizeof(expected));
	expected[0] = '/', expected[256] = 0;
	head = parse_bytes(line, sizeof(line), sizeof(line));
	assert_string_equal(head.path, expected);
	/* cut between characters */
	memcpy(line + 4 + 255, "\xc3\xab", 2);
	expected[255] = 0;
	head = parse_bytes(line, sizeof(line), sizeof(line));
	assert_string_equal(head.path, expected);
	memcpy(line + 4, "/a\0b ", 5);
	head = parse_bytes(line, sizeof(line), sizeof(line));
	assert_string_equal(head.path, "/a?b");
}

static void check_trace(const char *headers, bool known)
{
	char text[2048];
	struct http_head head;

	snprintf(text, sizeof(text), "GET /p HTTP/1.1\r\n%s\r\n", headers);
	head = parse(text);
	assert_string_equal(head.method, "GET");
	assert_string_equal(head.path, "/p");
	assert_string_equal(head.trace_id, known ? TRACE : "");
	assert_string_equal(head.parent_span_id, known ? SPAN : "");
}

static void a_trace_context_is_read(void **state)
{
	(void)state;
	check_trace("traceparent: " PARENT "\r\n", true);
	check_trace(HOST "TraceParent:" PARENT "\r\nAccept: */*\r\n", true);
	check_trace("traceparent:\t " PARENT " \t\r\n", true);
	check_trace("traceparent: cc-" TRACE "-" SPAN "-00\r\n", true);
	check_trace("traceparent: cc-" TRACE "-" SPAN "-00-more\r\n", true);
	check_trace("X-Traceparent: 1\r\ntraceparent: " PARENT "\r\ntracestate: a=1\r\n", true);
	check_trace("X-Empty:\r\nCookie: a=b:c; d\xc3\xab\r\ntraceparent: " PARENT "\r\n", true);
}

static void an_invalid_trace_context_is_none(void **state)
{
	static const char *const values[] = {
		"",
		"00",
		"00-" TRACE "-" SPAN,
		"00-" TRACE "-" SPAN "-0",
		"00-" TRACE "-" SPAN "-001",
		"00-" TRACE "-" SPAN "-01-more",
		"cc-" TRACE "-" SPAN "-01more",
		"ff-" TRACE "-" SPAN "-01",
		"0x-" TRACE "-" SPAN "-01",
		"00-" TRACE "-" SPAN "-0x",
		"00-" TRACE "-" SPAN "-0A",
		"00_" TRACE "-" SPAN "-01",
		"00-" TRACE "_" SPAN "-01",
		"00-" TRACE "-" SPAN "_01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-" TRACE "-00F067AA0BA902B7-01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-012",
		"\"" PARENT "\"",
		PARENT "," PARENT,
		PARENT " x",
	};
	char header[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		snprintf(header, sizeof(header), "traceparent: %s\r\n", values[i]);
		check_trace(header, false);
	}
}

/* Each a valid traceparent, beside a line that servers read differently. */
static void an_ambiguous_head_has_no_trace_context(void **state)
{
	static const char *const headers[] = {
		"traceparent: " PARENT "\r\ntraceparent: " PARENT "\r\n",
		"traceparent: " PARENT "\r\nTRACEPARENT: x\r\n",
		"traceparent:\r\n " PARENT "\r\n",
		"traceparent: " PARENT "\r\n folded\r\n",
		"X: a\r\n folded\r\ntraceparent: " PARENT "\r\n",
		"X: a\r\n traceparent: " PARENT "\r\n",
		"X: a\r\n\ttraceparent: " PARENT "\r\n",
		"traceparent : " PARENT "\r\n",
		"traceparent : x\r\ntraceparent: " PARENT "\r\n",
		"X: a\ntraceparent: " PARENT "\r\n",
		"X: a\rtraceparent: " PARENT "\r\n",
		"traceparent: " PARENT "\nX: a\r\n",
		"traceparent: " PARENT "\r\r\n",
		"no header\r\ntraceparent: " PARENT "\r\n",
		": no name\r\ntraceparent: " PARENT "\r\n",
		"X\x0b: a\r\ntraceparent: " PARENT "\r\n",
		"\nX: a\r\ntraceparent: " PARENT "\r\n",
		/* in the body */
		"X: a\r\n\r\ntraceparent: " PARENT "\r\n",
		"X: traceparent: " PARENT "\r\n",
	};
	static const char nul[] = "GET / HTTP/1.1\r\nX: \0\r\ntraceparent: " PARENT "\r\n\r\n";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		check_trace(headers[i], false);
	assert_string_equal(parse_bytes(nul, sizeof(nul) - 1, sizeof(nul) - 1).trace_id, "");
	assert_string_equal(parse("GET / HTTP/1.1\ntraceparent: " PARENT "\r\n\r\n").trace_id, "");
	assert_string_equal(parse("GET / HTTP/2\r\ntraceparent: " PARENT "\r\n\r\n").trace_id, "");
	assert_string_equal(parse("GET /\r\ntraceparent: " PARENT "\r\n\r\n").trace_id, "");
	assert_string_equal(parse("GET /a b HTTP/1.1\r\ntraceparent: " PARENT "\r\n\r\n").trace_id,
			    "");
}

static void what_follows_a_head_does_not_count(void **state)
{
	struct http_head head;

	(void)state;
	head = parse("POST /a HTTP/1.1\r\ntraceparent: " PARENT
		     "\r\n\r\ntraceparent: x\nbody\r\n\r\n");
	assert_string_equal(head.trace_id, TRACE);
	head = parse("GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\ntraceparent: " PARENT
		     "\r\n\r\n");
	assert_string_equal(head.path, "/1");
	assert_string_equal(head.trace_id, "");
}

/* The first bytes of a head in pieces: lines that are complete count. */
static void a_head_may_be_incomplete(void **state)
{
	static const char whole[] = "GET /p HTTP/1.1\r\n" HOST "traceparent: " PARENT
				    "\r\nAccept: a\r\n\r\n";
	size_t end = (size_t)(strstr(whole, "\r\nAccept") - whole) + 2;

	(void)state;
	for (size_t n = 0; n < sizeof(whole); n++) {
		struct http_head head = parse_bytes(whole, n, n);

		assert_string_equal(head.method, n > 3 ? "GET" : "");
		assert_string_equal(head.path, n > 6 ? "/p" : "");
		assert_string_equal(head.trace_id, n >= end ? TRACE : "");
	}
}

#define FIRST "GET /p HTTP/1.1\r\n" HOST "Cookie: aaaa"
static void the_end_of_a_long_head_counts(void **state)
{
	static const char *const no_tail[] = {
		"traceparent: " PARENT "\r\n\r\n",	     /* maybe a value's end */
		"aa\r\ntraceparent: " PARENT "\r\n",	     /* not the head's end */
		"aa\r\ntraceparent: " PARENT "\r\n\r\nbody", /* nor here */
		"aa\r\n\r\ntraceparent: " PARENT "\r\n\r\n", /* a second head or a body */
		"\r\ntraceparent: " PARENT "\r\n\r\n",	     /* maybe, too */
		"\n\r\ntraceparent: " PARENT "\r\n\r\n",
		"aa\r\ntraceparent: " PARENT "\r\ntraceparent: x\r\n\r\n", /* twice */
		"aa\r\nX: a\ntraceparent: " PARENT "\r\n\r\n",
		"",
		"aaaa",
	};
	struct http_head head;

	(void)state;
	head = parse_pieces(FIRST, "aa\r\ntraceparent: " PARENT "\r\nX: y\r\n\r\n");
	assert_string_equal(head.path, "/p");
	assert_string_equal(head.trace_id, TRACE);
	assert_string_equal(head.parent_span_id, SPAN);
	for (size_t i = 0; i < ARRAY_SIZE(no_tail); i++)
		assert_string_equal(parse_pieces(FIRST, no_tail[i]).trace_id, "");
	/* one of each */
	head = parse_pieces("GET /p HTTP/1.1\r\ntraceparent: " PARENT "\r\nCookie: a",
			    "a\r\ntraceparent: " PARENT "\r\n\r\n");
	assert_string_equal(head.trace_id, "");
	/* the tail is an ordinary end */
	head = parse_pieces("GET /p HTTP/1.1\r\ntraceparent: " PARENT "\r\nCookie: a",
			    "a\r\nX: y\r\n\r\n");
	assert_string_equal(head.trace_id, TRACE);
	/* the head ended in the first piece, or may have a body */
	head = parse_pieces("GET /p HTTP/1.1\r\n" HOST "\r\nbody",
			    "a\r\ntraceparent: " PARENT "\r\n\r\n");
	assert_string_equal(head.trace_id, "");
	head = parse_pieces("POST /p HTTP/1.1\r\nCookie: aaaa",
			    "a\r\ntraceparent: " PARENT "\r\n\r\n");
	assert_string_equal(head.method, "POST");
	assert_string_equal(head.trace_id, "");
}

/* A uwsgi head under construction. */
struct packet {
	unsigned char bytes[2048];
	size_t n;
};

static void put_text(struct packet *packet, const char *text)
{
	size_t len = strlen(text);

	packet->bytes[packet->n++] = (unsigned char)len;
	packet->bytes[packet->n++] = (unsigned char)(len >> 8);
	memcpy(packet->bytes + packet->n, text, len);
	packet->n += len;
}

/* NAME, VALUE, ..., NULL */
static struct packet make_packet(const char *name, ...)
{
	struct packet packet = { .n = 4 };
	va_list ap;

	va_start(ap, name);
	for (; name; name = va_arg(ap, const char *)) {
		put_text(&packet, name);
		put_text(&packet, va_arg(ap, const char *));
	}
	va_end(ap);
	packet.bytes[1] = (unsigned char)(packet.n - 4);
	packet.bytes[2] = (unsigned char)((packet.n - 4) >> 8);
	return packet;
}

static void uwsgi_heads_are_read(void **state)
{
	struct packet p = make_packet("QUERY_STRING", "a=b", "REQUEST_METHOD", "POST",
				      "CONTENT_LENGTH", "4", "REQUEST_URI", "/%61?q", "PATH_INFO",
				      "/a", "HTTP_TRACEPARENT", PARENT, "HTTP_HOST", "x", NULL);
	struct http_head head = parse_bytes(p.bytes, p.n, p.n);

	(void)state;
	assert_string_equal(head.method, "POST");
	assert_string_equal(head.path, "/%61");
	assert_string_equal(head.trace_id, TRACE);
	assert_string_equal(head.parent_span_id, SPAN);
	/* in pieces: complete variables count */
	for (size_t n = 0; n <= p.n; n++) {
		head = parse_bytes(p.bytes, n, n);
		assert_true(!head.trace_id[0] || n > p.n - 16);
	}
	/* a body that looks like a variable is none */
	p = make_packet("REQUEST_METHOD", "POST", "PATH_INFO", "/a\x1b", NULL);
	put_text(&p, "HTTP_TRACEPARENT");
	put_text(&p, PARENT);
	head = parse_bytes(p.bytes, p.n, p.n);
	assert_string_equal(head.path, "/a?");
	assert_string_equal(head.trace_id, "");
	/* twice is none */
	p = make_packet("REQUEST_METHOD", "GET", "PATH_INFO", "/a", "HTTP_TRACEPARENT", PARENT,
			"HTTP_TRACEPARENT", PARENT, "REQUEST_URI", "/a", "REQUEST_URI", "/b", NULL);
	head = parse_bytes(p.bytes, p.n, p.n);
	assert_string_equal(head.method, "GET");
	assert_string_equal(head.path, "");
	assert_string_equal(head.trace_id, "");
}

/* Parses without the bytes from `gap_at` to `tail`. */
static struct http_head parse_gap(struct packet p, size_t gap_at, size_t tail)
{
	memmove(p.bytes + gap_at, p.bytes + tail, p.n - tail);
	return parse_bytes(p.bytes, p.n - (tail - gap_at), gap_at);
}

static void a_uwsgi_head_may_be_long(void **state)
{
	char cookie[300];
	struct packet p;

	(void)state;
	memset(cookie, 'c', sizeof(cookie));
	cookie[sizeof(cookie) - 1] = 0;
	p = make_packet("REQUEST_METHOD", "GET", "REQUEST_URI", "/a", "CONTENT_LENGTH", "",
			"HTTP_COOKIE", cookie, "HTTP_TRACEPARENT", PARENT, "HTTP_X", "y", NULL);
	assert_string_equal(parse_gap(p, 100, 150).trace_id, TRACE);
	assert_string_equal(parse_gap(p, 100, 150).path, "/a");
	/* bytes behind it: not the tail of this head */
	p.n++;
	assert_string_equal(parse_gap(p, 100, 150).trace_id, "");
	p = make_packet("REQUEST_METHOD", "POST", "REQUEST_URI", "/a", "CONTENT_LENGTH", "999",
			"HTTP_COOKIE", cookie, "HTTP_TRACEPARENT", PARENT, NULL);
	assert_string_equal(parse_gap(p, 100, 150).method, "POST");
	assert_string_equal(parse_gap(p, 100, 150).trace_id, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(method_and_path),
		cmocka_unit_test(a_path_is_bounded),
		cmocka_unit_test(a_trace_context_is_read),
		cmocka_unit_test(an_invalid_trace_context_is_none),
		cmocka_unit_test(an_ambiguous_head_has_no_trace_context),
		cmocka_unit_test(what_follows_a_head_does_not_count),
		cmocka_unit_test(a_head_may_be_incomplete),
		cmocka_unit_test(the_end_of_a_long_head_counts),
		cmocka_unit_test(uwsgi_heads_are_read),
		cmocka_unit_test(a_uwsgi_head_may_be_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
