// SPDX-License-Identifier: Apache-2.0
/*
 * Rows as JSON lines. Written by hand: the hottest user-space loop of the agent. A tree of JSON
 * values per row would cost several times as much. See json.h.
 */
#include "pipeline/json.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"

/*
 * Before each value, ROOM bytes are reserved: enough for its key and a number, with copies of whole
 * words beyond the end. What is longer reserves its own room, and ROOM again. NULL: out of memory.
 */
enum { MAX_UINT = 20, MAX_FLOAT = 32, MAX_ESCAPED_BYTE = 6 /* \u00XX */, ROOM = 192 };

static char *room_at_end(struct buffer *b, size_t more)
{
	return buffer_reserve(b, more + ROOM) ? NULL : b->data + b->len;
}

static char *make_room(struct buffer *b, char *out, size_t more)
{
	b->len = (size_t)(out - b->data);
	return room_at_end(b, more);
}

static char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

static char *put_uint(char *out, uint64_t v)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
				    "313233343536373839404142434445464748495051525354555657585960"
				    "616263646566676869707172737475767778798081828384858687888990"
				    "919293949596979899";
	char digits[2 * MAX_UINT] = { 0 }, *at = digits + MAX_UINT;

	for (; v >= 100; v /= 100)
		memcpy(at -= 2, pairs + v % 100 * 2, 2);
	if (v >= 10)
		memcpy(at -= 2, pairs + v * 2, 2);
	else
		*--at = (char)('0' + v);
	memcpy(out, at, MAX_UINT); /* of constant length: no call */
	return out + (digits + MAX_UINT - at);
}

/* \uXXXX for a control character of up to three bytes: rows may be printed on a terminal. */
static char *put_escaped(char *out, const unsigned char *s, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	unsigned int c = n == 1 ? s[0] : n == 2 ? s[0] & 0x1f : s[0] & 0x0f;

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (s[i] & 0x3f);
	out = put(out, "\\u", 2);
	for (int shift = 12; shift >= 0; shift -= 4)
		*out++ = hex[c >> shift & 15];
	return out;
}

/* A character outside printable ASCII: escaped, kept (valid UTF-8) or replaced. */
static char *put_odd(char *out, const unsigned char *s, size_t len, size_t *ret_used)
{
	size_t n = utf8_sequence(s, len);

	*ret_used = n ? n : 1;
	if (n > 1)
		return text_is_control(s, n) ? put_escaped(out, s, n)
					     : put(out, (const char *)s, n);
	if (n == 0)
		return put(out, "\xef\xbf\xbd", 3);
	if (*s == '"' || *s == '\\') {
		*out++ = '\\';
		*out++ = (char)*s;
		return out;
	}
	return put_escaped(out, s, 1);
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Whether one of eight characters is not plain. */
static bool has_odd(uint64_t word)
{
	const uint64_t ones = 0x0101010101010101, high = 0x80 * ones;
	const uint64_t quote = word ^ '"' * ones, backslash = word ^ '\\' * ones,
		       del = word ^ 0x7f * ones;

	return (((word - 0x20 * ones) & ~word) | ((quote - ones) & ~quote) |
		((backslash - ones) & ~backslash) | ((del - ones) & ~del) | word) &
	       high;
}

/* Copies characters up to the first that is not plain. Returns their number. */
static size_t put_plain(char *out, const unsigned char *s, size_t len)
{
	uint64_t word;
	size_t i = 0;

	for (; i + sizeof(word) <= len; i += sizeof(word)) {
		memcpy(&word, s + i, sizeof(word));
		if (has_odd(word))
			break;
		memcpy(out + i, &word, sizeof(word));
	}
	for (; i < len && is_plain(s[i]); i++)
		out[i] = (char)s[i];
	return i;
}

static char *put_string(struct buffer *b, char *out, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;

	out = make_room(b, out, len * MAX_ESCAPED_BYTE);
	if (!out)
		return NULL;
	*out++ = '"';
	for (size_t i = 0, used; i < len; i += used) {
		used = put_plain(out, s + i, len - i);
		out += used;
		if (!used)
			out = put_odd(out, s + i, len - i, &used);
	}
	*out++ = '"';
	return out;
}

static char *put_text(struct buffer *b, char *out, const char *text)
{
	return put_string(b, out, text ? text : "", text ? strlen(text) : 0);
}

static char *put_strings(struct buffer *b, char *out, const struct column_strings *list)
{
	*out++ = '[';
	for (size_t i = 0; i < list->n && out; i++) {
		if (i)
			*out++ = ',';
		out = put_text(b, out, list->items[i]);
	}
	return out ? put(out, "]", 1) : NULL;
}

static char *put_numbers(struct buffer *b, char *out, const struct column_numbers *list)
{
	out = make_room(b, out, list->n * (MAX_UINT + 1));
	if (!out)
		return NULL;
	*out++ = '[';
	for (size_t i = 0; i < list->n; i++) {
		if (i)
			*out++ = ',';
		out = put_uint(out, list->items[i]);
	}
	*out++ = ']';
	return out;
}

/* A text's members: `{"first":1,"second":2,"third":"text"}`. */
static char *put_pair(struct buffer *b, char *out, const struct column_pair *pair,
		      const struct column *c)
{
	for (size_t j = 0; j < 2 && out; j++) {
		*out++ = j ? ',' : '{';
		out = put_text(b, out, c->names[j]);
		if (!out)
			return NULL;
		*out++ = ':';
		out = put_uint(out, pair->values[j]);
	}
	if (c->n_names > 2) {
		*out++ = ',';
		out = put_text(b, out, c->names[2]);
		if (!out)
			return NULL;
		*out++ = ':';
		out = put_text(b, out, pair->text);
	}
	return out ? put(out, "}", 1) : NULL;
}

static char *put_pairs(struct buffer *b, char *out, const struct column_pairs *list,
		       const struct column *c)
{
	*out++ = '[';
	for (size_t i = 0; i < list->n && out; i++) {
		if (i)
			*out++ = ',';
		out = put_pair(b, out, &list->items[i], c);
	}
	return out ? put(out, "]", 1) : NULL;
}

static char *put_maybe_uint(char *out, const struct column_maybe_u64 *maybe)
{
	return maybe->known ? put_uint(out, maybe->value) : put(out, "null", 4);
}

static char *put_ip(char *out, const uint8_t *ip)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	*out++ = '"';
	if (!memcmp(ip, mapped, sizeof(mapped))) {
		/* by hand: inet_ntop() costs as much as the rest of the row */
		out = put(out, "::ffff:", 7);
		for (int i = 12; i < 16; i++) {
			out = put_uint(out, ip[i]);
			*out++ = '.';
		}
		out--;
	} else {
		inet_ntop(AF_INET6, ip, out, INET6_ADDRSTRLEN);
		out += strlen(out);
	}
	*out++ = '"';
	return out;
}

static char *put_float(char *out, float v)
{
	if (v == 1.0f)
		return put(out, "1", 1);
	return out + snprintf(out, MAX_FLOAT, "%.9g", (double)v);
}

static char *put_value(struct buffer *b, char *out, const struct column *c, const void *row)
{
	const void *at = (const char *)row + c->offset;
	uint8_t index;

	switch (c->kind) {
	case COLUMN_U8:
		return put_uint(out, *(const uint8_t *)at);
	case COLUMN_U16:
		return put_uint(out, *(const uint16_t *)at);
	case COLUMN_U32:
		return put_uint(out, *(const uint32_t *)at);
	case COLUMN_U64:
		return put_uint(out, *(const uint64_t *)at);
	case COLUMN_MAYBE_U64:
		return put_maybe_uint(out, at);
	case COLUMN_S8:
		if (*(const int8_t *)at < 0)
			*out++ = '-';
		return put_uint(out, (uint64_t)abs(*(const int8_t *)at));
	case COLUMN_F32:
		return put_float(out, *(const float *)at);
	case COLUMN_CHARS:
		return put_string(b, out, at, strnlen(at, c->size));
	case COLUMN_STRING:
		return put_text(b, out, *(const char *const *)at);
	case COLUMN_STRINGS:
		return put_strings(b, out, at);
	case COLUMN_NUMBERS:
		return put_numbers(b, out, at);
	case COLUMN_PAIRS:
		return put_pairs(b, out, at, c);
	case COLUMN_ENUM:
		index = *(const uint8_t *)at;
		return put_text(b, out, index < c->n_names ? c->names[index] : "");
	case COLUMN_IP:
		return put_ip(out, at);
	case COLUMN_TIME:
		return put_uint(out, clock_wall_us(*(const uint64_t *)at));
	}
	return out;
}

static char *put_column(struct buffer *b, char *out, const struct column *c, const void *row)
{
	out = make_room(b, out, 0);
	if (!out)
		return NULL;
	memcpy(out, c->key, sizeof(c->key)); /* of constant length: no call */
	return put_value(b, out + c->key_len, c, row);
}

static char *put_row(struct buffer *b, const struct table *table, const void *row, bool with_table)
{
	char *out = room_at_end(b, 0);

	if (!out)
		return NULL;
	*out++ = '{';
	if (with_table) {
		out = put_text(b, put(out, "\"table\":", 8), table->name);
		if (!out)
			return NULL;
		*out++ = ',';
	}
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++) {
			out = put_column(b, out, &table->columns[part][i], row);
			if (!out)
				return NULL;
			*out++ = ',';
		}
	}
	return put(out - 1, "}\n", 2); /* instead of the last comma */
}

int json_append_row(struct buffer *b, const struct table *table, const void *row, bool with_table)
{
	size_t before = b->len;
	char *out = put_row(b, table, row, with_table);

	b->len = out ? (size_t)(out - b->data) : before;
	return out ? 0 : -ENOMEM;
}
