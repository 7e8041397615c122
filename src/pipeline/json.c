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
 * All functions below write without bounds checks: json_append_row() first reserves the maximum
 * length of the row.
 */
enum { MAX_UINT = 20, MAX_FLOAT = 32, MAX_ESCAPED_BYTE = 6 /* \u00XX */ };

static char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

static char *put_uint(char *out, uint64_t v)
{
	char digits[MAX_UINT];
	size_t i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return put(out, digits + i, sizeof(digits) - i);
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

static char *put_string(char *out, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t used;

	*out++ = '"';
	for (size_t i = 0; i < len; i += used) {
		if (s[i] >= 0x20 && s[i] < 0x7f && s[i] != '"' && s[i] != '\\') {
			*out++ = (char)s[i];
			used = 1;
		} else {
			out = put_odd(out, s + i, len - i, &used);
		}
	}
	*out++ = '"';
	return out;
}

static char *put_text(char *out, const char *text)
{
	return put_string(out, text ? text : "", text ? strlen(text) : 0);
}

static char *put_strings(char *out, const struct column_strings *list)
{
	*out++ = '[';
	for (size_t i = 0; i < list->n; i++) {
		if (i)
			*out++ = ',';
		out = put_text(out, list->items[i]);
	}
	*out++ = ']';
	return out;
}

static char *put_numbers(char *out, const struct column_numbers *list)
{
	*out++ = '[';
	for (size_t i = 0; i < list->n; i++) {
		if (i)
			*out++ = ',';
		out = put_uint(out, list->items[i]);
	}
	*out++ = ']';
	return out;
}

static char *put_pairs(char *out, const struct column_pairs *list, const struct column *c)
{
	*out++ = '[';
	for (size_t i = 0; i < list->n; i++) {
		for (size_t j = 0; j < 2; j++) {
			out = put(out, j ? "," : i ? ",{" : "{", j || !i ? 1 : 2);
			out = put_text(out, c->names[j]);
			*out++ = ':';
			out = put_uint(out, list->items[i].values[j]);
		}
		if (c->n_names > 2) {
			*out++ = ',';
			out = put_text(out, c->names[2]);
			*out++ = ':';
			out = put_text(out, list->items[i].text);
		}
		*out++ = '}';
	}
	*out++ = ']';
	return out;
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

static char *put_value(char *out, const struct column *c, const void *row)
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
		return put_string(out, at, strnlen(at, c->size));
	case COLUMN_STRING:
		return put_text(out, *(const char *const *)at);
	case COLUMN_STRINGS:
		return put_strings(out, at);
	case COLUMN_NUMBERS:
		return put_numbers(out, at);
	case COLUMN_PAIRS:
		return put_pairs(out, at, c);
	case COLUMN_ENUM:
		index = *(const uint8_t *)at;
		return put_text(out, index < c->n_names ? c->names[index] : "");
	case COLUMN_IP:
		return put_ip(out, at);
	case COLUMN_TIME:
		return put_uint(out, clock_wall_us(*(const uint64_t *)at));
	}
	return out;
}

static size_t longest_pairs(const struct column_pairs *list, const struct column *c)
{
	size_t len = 2;

	for (size_t i = 0; i < list->n; i++) {
		for (size_t j = 0; j < c->n_names; j++)
			len += strlen(c->names[j]) + MAX_UINT + 6;
		if (c->n_names > 2 && list->items[i].text)
			len += strlen(list->items[i].text) * MAX_ESCAPED_BYTE;
	}
	return len;
}

/* Maximum length of the value, quotes included. */
static size_t longest_value(const struct column *c, const void *row)
{
	const void *at = (const char *)row + c->offset;
	const struct column_strings *list = at;
	const char *text;
	size_t len = 2;

	switch (c->kind) {
	case COLUMN_CHARS:
		return c->size * MAX_ESCAPED_BYTE + 2;
	case COLUMN_STRING:
		text = *(const char *const *)at;
		return (text ? strlen(text) : 0) * MAX_ESCAPED_BYTE + 2;
	case COLUMN_STRINGS:
		for (size_t i = 0; i < list->n; i++)
			len += strlen(list->items[i]) * MAX_ESCAPED_BYTE + 3;
		return len;
	case COLUMN_NUMBERS:
		return ((const struct column_numbers *)at)->n * (MAX_UINT + 1) + 2;
	case COLUMN_PAIRS:
		return longest_pairs(at, c);
	case COLUMN_ENUM: /* short constant names */
	default:
		return 64;
	}
}

static size_t longest_row(const struct table *table, const void *row)
{
	size_t len = sizeof("{\"table\":\"\",}\n") + strlen(table->name);

	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++) {
			const struct column *c = &table->columns[part][i];

			len += strlen(c->name) + 4 + longest_value(c, row);
		}
	}
	return len;
}

int json_append_row(struct buffer *b, const struct table *table, const void *row, bool with_table)
{
	char separator = '{', *out;

	if (buffer_reserve(b, longest_row(table, row)))
		return -ENOMEM;
	out = b->data + b->len;
	if (with_table) {
		out = put(out, "{\"table\":", 9);
		out = put_text(out, table->name);
		separator = ',';
	}
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; i < table->n_columns[part]; i++) {
			const struct column *c = &table->columns[part][i];

			*out++ = separator;
			*out++ = '"';
			out = put(out, c->name, strlen(c->name));
			*out++ = '"';
			*out++ = ':';
			out = put_value(out, c, row);
			separator = ',';
		}
	}
	out = put(out, "}\n", 2);
	b->len = (size_t)(out - b->data);
	return 0;
}
