// SPDX-License-Identifier: Apache-2.0
/* Method, path and trace context of a request. See http_head.h. */
#include "rows/http_head.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/util.h"

/* traceparent of version 00: "00-" 32 digits "-" 16 digits "-" 2 digits */
enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, TRACEPARENT_LEN = 55 };

/* Known methods only: a client cannot create any number of values. */
static const struct {
	const char *name;
	bool no_body; /* requests with a body are unusual */
} methods[] = {
	{ "GET", true },    { "HEAD", true },	 { "POST" },	      { "PUT" },
	{ "DELETE", true }, { "CONNECT", true }, { "OPTIONS", true }, { "TRACE", true },
	{ "PATCH" },	    { "PROPFIND" },	 { "PROPPATCH" },     { "MKCOL" },
	{ "COPY" },	    { "MOVE" },		 { "LOCK" },	      { "UNLOCK" },
	{ "REPORT" },	    { "SEARCH" },	 { "QUERY" },	      { "PURGE" },
};

static bool equals(struct text text, const char *word)
{
	return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

/* Cuts the text before the first character of `ends`; false: not found, text unchanged. */
static bool cut_at(struct text *text, const char *ends)
{
	for (size_t i = 0; i < text->len; i++) {
		if (text->at[i] && strchr(ends, text->at[i])) {
			text->len = i;
			return true;
		}
	}
	return false;
}

static struct text text_from(struct text text, size_t skipped)
{
	return (struct text){ text.at + skipped, text.len - skipped };
}

static bool is_token(struct text name)
{
	for (size_t i = 0; i < name.len; i++) {
		unsigned char c = (unsigned char)name.at[i];

		if (c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c))
			return false;
	}
	return name.len > 0;
}

/* Whether bodies are unusual with the method; '' if the method is not known. */
static bool take_method(struct text word, struct http_head *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (equals(word, methods[i].name)) {
			memcpy(ret->method, word.at, word.len);
			return methods[i].no_body;
		}
	}
	return false;
}

/*
 * The path in a request's target: "/path?query", "http://host/path" or "*". `whole`: the end of the
 * target was seen. A path without a seen end is left out, unless too long anyway.
 */
static void take_path(struct text target, bool whole, struct http_head *ret)
{
	char copy[sizeof(ret->path) + 4]; /* the character at the limit is complete */
	struct text scheme = target;
	const char *slashes;

	whole = cut_at(&target, "?#") || whole;
	slashes = memmem(target.at, target.len, "://", 3);
	scheme.len = slashes ? (size_t)(slashes - target.at) : 0;
	if (scheme.len && !memchr(scheme.at, '/', scheme.len)) {
		const char *slash;

		target = text_from(target, scheme.len + 3);
		slash = memchr(target.at, '/', target.len);
		if (!slash)
			target = whole ? (struct text){ "/", 1 } : (struct text){ "", 0 };
		else
			target = text_from(target, (size_t)(slash - target.at));
	}
	if (!target.len || (target.at[0] != '/' && !equals(target, "*")))
		return;
	if (!whole && target.len < sizeof(ret->path))
		return;
	if (target.len >= sizeof(copy))
		target.len = sizeof(copy) - 1;
	for (size_t i = 0; i < target.len; i++)
		copy[i] = target.at[i] ? target.at[i] : '\x01'; /* as any other control */
	copy[target.len] = 0;
	text_printable(ret->path, sizeof(ret->path), copy);
}

static bool is_lower_hex(struct text digits)
{
	for (size_t i = 0; i < digits.len; i++) {
		if (!digits.at[i] || !strchr("0123456789abcdef", digits.at[i]))
			return false;
	}
	return true;
}

static bool is_id(struct text digits)
{
	bool zero = true;

	for (size_t i = 0; i < digits.len; i++)
		zero = zero && digits.at[i] == '0';
	return is_lower_hex(digits) && !zero;
}

/* As W3C Trace Context says; an invalid value changes nothing. */
static void take_traceparent(struct text value, struct http_head *ret)
{
	const char *at = value.at;
	struct text trace = { at + TRACE_AT, 32 }, span = { at + SPAN_AT, 16 };

	if (value.len < TRACEPARENT_LEN || at[2] != '-' || at[SPAN_AT - 1] != '-' ||
	    at[FLAGS_AT - 1] != '-')
		return;
	if (!is_lower_hex((struct text){ at, 2 }) || memcmp(at, "ff", 2) == 0)
		return;
	/* later versions may append members, version 00 none */
	if (value.len > TRACEPARENT_LEN && (memcmp(at, "00", 2) == 0 || at[TRACEPARENT_LEN] != '-'))
		return;
	if (!is_id(trace) || !is_id(span) || !is_lower_hex((struct text){ at + FLAGS_AT, 2 }))
		return;
	memcpy(ret->trace_id, trace.at, trace.len);
	memcpy(ret->parent_span_id, span.at, span.len);
}

/* The values of the header, and whether servers may read the lines differently. */
struct headers {
	struct text traceparent;
	unsigned int n_traceparents;
	bool ambiguous, ended;
};

static void take_header(struct text line, struct headers *headers)
{
	struct text name = line, value;

	/* folded lines, spaces around the name, lines that are no header: servers differ */
	if (!cut_at(&name, ":") || !is_token(name)) {
		headers->ambiguous = true;
		return;
	}
	if (name.len != strlen("traceparent") || strncasecmp(name.at, "traceparent", name.len))
		return;
	value = text_from(line, name.len + 1);
	while (value.len && (value.at[0] == ' ' || value.at[0] == '\t'))
		value = text_from(value, 1);
	while (value.len && (value.at[value.len - 1] == ' ' || value.at[value.len - 1] == '\t'))
		value.len--;
	headers->traceparent = value;
	headers->n_traceparents++;
}

/* Takes a line off the text, without the line end; false: the end is missing. */
static bool next_line(struct text *rest, struct text *ret_line, bool *ret_ambiguous)
{
	const char *end = memchr(rest->at, '\n', rest->len);
	size_t len;

	if (!end)
		return false;
	len = (size_t)(end - rest->at);
	*ret_line = (struct text){ rest->at, len };
	*rest = text_from(*rest, len + 1);
	if (len && ret_line->at[len - 1] == '\r')
		ret_line->len--;
	else
		*ret_ambiguous = true; /* not a line end for some servers */
	if (memchr(ret_line->at, '\r', ret_line->len) || memchr(ret_line->at, 0, ret_line->len))
		*ret_ambiguous = true;
	return true;
}

/* Complete lines up to the blank line; returns the rest behind the last complete line. */
static struct text take_headers(struct text rest, struct headers *headers)
{
	struct text line;

	while (!headers->ended && next_line(&rest, &line, &headers->ambiguous)) {
		if (!line.len)
			headers->ended = true;
		else
			take_header(line, headers);
	}
	return rest;
}

/* The end of a head with an unknown middle. The first line is cut. */
static void take_tail(struct text tail, struct headers *headers)
{
	struct headers found = *headers;
	bool ignored = false;
	struct text line, rest;

	/* an empty line may be the head's last, before a body */
	if (!next_line(&tail, &line, &ignored) || !line.len)
		return;
	rest = take_headers(tail, &found);
	if (found.ended && !rest.len)
		*headers = found;
}

/* "GET /path HTTP/1.1"; whether headers of HTTP/1 follow. */
static bool take_request_line(struct text line, bool whole, struct http_head *ret,
			      bool *ret_no_body)
{
	struct text method = line, target, version;
	bool is_http;

	if (!cut_at(&method, " "))
		return false;
	*ret_no_body = take_method(method, ret);
	target = version = text_from(line, method.len + 1);
	whole = cut_at(&target, " ") || whole;
	version = text_from(version, target.len);
	is_http = equals(version, " HTTP/1.1") || equals(version, " HTTP/1.0");
	if (!ret->method[0] && !(is_http && is_token(method)))
		return false;
	take_path(target, whole, ret);
	return is_http;
}

static void parse_http(struct text first, struct text tail, struct http_head *ret)
{
	struct headers headers = { 0 };
	struct text line = first;
	bool no_body, whole = next_line(&first, &line, &headers.ambiguous);

	ret->cut = !whole;
	if (!take_request_line(line, whole, ret, &no_body) || !whole)
		return;
	take_headers(first, &headers);
	ret->cut = !headers.ended;
	if (!headers.ended && tail.len && no_body)
		take_tail(tail, &headers);
	if (!headers.ambiguous && headers.n_traceparents == 1)
		take_traceparent(headers.traceparent, ret);
}

/* uwsgi: modifier, size of the variables (little endian), modifier, then the variables. */
enum { UWSGI_HEAD = 4 };

/* Variables of a uwsgi head; repeated: NULL with length 1. */
struct variables {
	struct text method, uri, path_info, content_length, traceparent;
};

/* A text after its length; false: incomplete. */
static bool next_text(struct text *rest, struct text *ret)
{
	size_t len;

	if (rest->len < 2)
		return false;
	len = (size_t)(uint8_t)rest->at[0] | (size_t)(uint8_t)rest->at[1] << 8;
	if (rest->len - 2 < len)
		return false;
	*ret = (struct text){ rest->at + 2, len };
	*rest = text_from(*rest, 2 + len);
	return true;
}

/* Complete variables; returns what is behind them. */
static struct text take_variables(struct text rest, struct variables *ret)
{
	const struct {
		const char *name;
		struct text *value;
	} known[] = {
		{ "REQUEST_METHOD", &ret->method },
		{ "REQUEST_URI", &ret->uri },
		{ "PATH_INFO", &ret->path_info },
		{ "CONTENT_LENGTH", &ret->content_length },
		{ "HTTP_TRACEPARENT", &ret->traceparent },
	};
	struct text name, value, next = rest;

	while (next_text(&next, &name) && next_text(&next, &value)) {
		for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
			if (!equals(name, known[i].name))
				continue;
			*known[i].value = known[i].value->len || known[i].value->at
						  ? (struct text){ NULL, 1 }
						  : value;
		}
		rest = next;
	}
	return rest;
}

/*
 * Variables in the tail: only without a body, which would be the tail. Nothing says where a
 * variable begins, but no header's value contains the NUL of the name's length, and the rest must
 * fit to the last byte.
 */
static void take_variables_of_tail(struct text tail, struct variables *ret)
{
	static const char name[] = "\x10\0HTTP_TRACEPARENT";
	const char *found = memmem(tail.at, tail.len, name, sizeof(name) - 1);
	struct variables all = *ret;

	if (!found || !ret->content_length.at ||
	    !(ret->content_length.len == 0 || equals(ret->content_length, "0")))
		return;
	if (take_variables(text_from(tail, (size_t)(found - tail.at)), &all).len == 0)
		ret->traceparent = all.traceparent;
}

static void parse_uwsgi(struct text first, struct text tail, struct http_head *ret)
{
	size_t size = (size_t)(uint8_t)first.at[1] | (size_t)(uint8_t)first.at[2] << 8;
	struct text variables = text_from(first, UWSGI_HEAD);
	struct variables found = { 0 };

	if (size <= variables.len)
		variables.len = size;
	take_variables(variables, &found);
	ret->cut = size > first.len - UWSGI_HEAD;
	if (size > first.len - UWSGI_HEAD && tail.len)
		take_variables_of_tail(tail, &found);
	if (found.method.at)
		take_method(found.method, ret);
	if (!ret->method[0])
		return;
	if (found.uri.at)
		take_path(found.uri, true, ret);
	else if (found.path_info.at && !found.uri.len)
		take_path(found.path_info, true, ret);
	if (found.traceparent.at)
		take_traceparent(found.traceparent, ret);
}

void http_head_parse(const char *bytes, size_t n, size_t tail_at, struct http_head *ret)
{
	struct text first = { bytes, tail_at < n ? tail_at : n };
	struct text tail = { bytes + first.len, n - first.len };

	*ret = (struct http_head){ 0 };
	if (!first.len)
		return;
	if (first.len > UWSGI_HEAD && bytes[0] == 0 && bytes[3] == 0)
		parse_uwsgi(first, tail, ret);
	else
		parse_http(first, tail, ret);
}
