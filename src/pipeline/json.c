// SPDX-License-Identifier: Apache-2.0
/*
 * Rows as JSON lines. Written by hand because it is the agent's hottest user-space loop: a tree of
 * JSON values a row would cost several times as much. See json.h.
 */
#include "pipeline/json.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>

#include "probe/clock.h"

static int append_uint(struct buffer *b, uint64_t v)
{
	char digits[20];
	size_t i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return buffer_append(b, digits + i, sizeof(digits) - i);
}

/* Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 if there is none. */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
	uint32_t min, v;
	size_t n;

	if (s[0] < 0x80)
		return 1;
	if ((s[0] & 0xe0) == 0xc0)
		n = 2, min = 0x80, v = s[0] & 0x1f;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3, min = 0x800, v = s[0] & 0x0f;
	else if ((s[0] & 0xf8) == 0xf0)
		n = 4, min = 0x10000, v = s[0] & 0x07;
	else
		return 0;
	if (n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (s[i] & 0x3f);
	}
	if (v < min || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		return 0;
	return n;
}

static int append_string(struct buffer *b, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	char *out;

	/* worst case: each byte becomes \u00XX */
	if (buffer_reserve(b, len * 6 + 2))
		return -ENOMEM;
	out = b->data + b->len;
	*out++ = '"';
	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(s + i, len - i);

		if (n == 0) {
			memcpy(out, "\xef\xbf\xbd", 3);
			out += 3;
			i++;
		} else if (s[i] == '"' || s[i] == '\\') {
			*out++ = '\\';
			*out++ = (char)s[i++];
		} else if (s[i] < 0x20 || s[i] == 0x7f) {
			static const char hex[] = "0123456789abcdef";

			memcpy(out, "\\u00", 4);
			out[4] = hex[s[i] >> 4];
			out[5] = hex[s[i] & 15];
			out += 6;
			i++;
		} else {
			memcpy(out, s + i, n);
			out += n;
			i += n;
		}
	}
	*out++ = '"';
	b->len = (size_t)(out - b->data);
	return 0;
}

static int append_text(struct buffer *b, const char *text)
{
	return append_string(b, text ? text : "", text ? strlen(text) : 0);
}

static int append_strings(struct buffer *b, const struct column_strings *list)
{
	int err = buffer_append(b, "[", 1);

	for (size_t i = 0; !err && i < list->n; i++) {
		if (i)
			err = buffer_append(b, ",", 1);
		if (!err)
			err = append_text(b, list->items[i]);
	}
	return err ? err : buffer_append(b, "]", 1);
}

static int append_pair(struct buffer *b, const struct column_pair *pair, const char *const *names)
{
	int err = 0;

	for (size_t i = 0; !err && i < 2; i++) {
		err = buffer_append(b, i ? "," : "{", 1);
		if (!err)
			err = append_text(b, names[i]);
		if (!err)
			err = buffer_append(b, ":", 1);
		if (!err)
			err = append_uint(b, pair->values[i]);
	}
	return err ? err : buffer_append(b, "}", 1);
}

static int append_pairs(struct buffer *b, const struct column_pairs *list, const char *const *names)
{
	int err = buffer_append(b, "[", 1);

	for (size_t i = 0; !err && i < list->n; i++) {
		if (i)
			err = buffer_append(b, ",", 1);
		if (!err)
			err = append_pair(b, &list->items[i], names);
	}
	return err ? err : buffer_append(b, "]", 1);
}

static int append_ip(struct buffer *b, const uint8_t *ip)
{
	char text[INET6_ADDRSTRLEN] = "::";

	inet_ntop(AF_INET6, ip, text, sizeof(text));
	return append_text(b, text);
}

static int append_float(struct buffer *b, float v)
{
	char text[32];

	if (v == 1.0f)
		return buffer_append(b, "1", 1);
	return buffer_append(b, text, (size_t)snprintf(text, sizeof(text), "%.9g", (double)v));
}

static int append_value(struct buffer *b, const struct column *c, const void *row)
{
	const void *at = (const char *)row + c->offset;
	uint8_t index;

	switch (c->kind) {
	case COLUMN_U8:
		return append_uint(b, *(const uint8_t *)at);
	case COLUMN_U16:
		return append_uint(b, *(const uint16_t *)at);
	case COLUMN_U32:
		return append_uint(b, *(const uint32_t *)at);
	case COLUMN_U64:
		return append_uint(b, *(const uint64_t *)at);
	case COLUMN_S8:
		if (*(const int8_t *)at < 0 && buffer_append(b, "-", 1))
			return -ENOMEM;
		return append_uint(b, (uint64_t)abs(*(const int8_t *)at));
	case COLUMN_F32:
		return append_float(b, *(const float *)at);
	case COLUMN_CHARS:
		return append_string(b, at, strnlen(at, c->size));
	case COLUMN_STRING:
		return append_text(b, *(const char *const *)at);
	case COLUMN_STRINGS:
		return append_strings(b, at);
	case COLUMN_PAIRS:
		return append_pairs(b, at, c->names);
	case COLUMN_ENUM:
		index = *(const uint8_t *)at;
		return append_text(b, index < c->n_names ? c->names[index] : "");
	case COLUMN_IP:
		return append_ip(b, at);
	case COLUMN_TIME:
		return append_uint(b, clock_wall_us(*(const uint64_t *)at));
	}
	return -EINVAL;
}

int json_append_row(struct buffer *b, const struct table *table, const void *row, bool with_table)
{
	size_t begin = b->len;
	const char *separator = "{";
	int err = 0;

	if (with_table) {
		err = buffer_append(b, "{\"table\":", 9);
		if (!err)
			err = append_text(b, table->name);
		separator = ",";
	}
	for (size_t part = 0; part < 2; part++) {
		for (size_t i = 0; !err && i < table->n_columns[part]; i++) {
			const struct column *c = &table->columns[part][i];

			err = buffer_append(b, separator, 1);
			if (!err)
				err = append_text(b, c->name);
			if (!err)
				err = buffer_append(b, ":", 1);
			if (!err)
				err = append_value(b, c, row);
			separator = ",";
		}
	}
	if (!err)
		err = buffer_append(b, "}\n", 2);
	if (err)
		b->len = begin;
	return err;
}
