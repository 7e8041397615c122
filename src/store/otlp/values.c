// SPDX-License-Identifier: Apache-2.0
/* Attributes and values as text. See traces.h. */
#include "store/otlp/traces.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"

static const struct text replacement = { "\\ufffd", 6 };

/* Escapes a character beyond plain ASCII; returns the number of bytes read. */
static size_t append_odd(struct buffer *b, const unsigned char *s, size_t len, int *err)
{
	size_t n = utf8_sequence(s, len);
	char escaped[8];

	if (!n)
		*err = buffer_append(b, replacement.at, replacement.len);
	else if (n > 1)
		*err = buffer_append(b, s, n);
	else
		*err = buffer_append(b, escaped,
				     (size_t)snprintf(escaped, sizeof(escaped),
						      *s == '"' || *s == '\\' ? "\\%c" : "\\u%04x",
						      *s));
	return n ?: 1;
}

int otlp_append_string(struct buffer *b, struct text text)
{
	const unsigned char *s = (const unsigned char *)text.at;
	int err = buffer_append(b, "\"", 1);
	size_t i = 0;

	while (!err && i < text.len) {
		size_t n = 0;

		while (i + n < text.len && s[i + n] >= 0x20 && s[i + n] < 0x7f && s[i + n] != '"' &&
		       s[i + n] != '\\')
			n++;
		err = buffer_append(b, s + i, n);
		i += n;
		if (!err && i < text.len)
			i += append_odd(b, s + i, text.len - i, &err);
	}
	return err ?: buffer_append(b, "\"", 1);
}

/* The shortest digits that parse to the same number. */
static size_t print_double(char *buf, size_t size, double v)
{
	if (isnan(v))
		return (size_t)snprintf(buf, size, "NaN");
	if (isinf(v))
		return (size_t)snprintf(buf, size, v < 0 ? "-Infinity" : "Infinity");
	for (int digits = 15; digits < 17; digits++) {
		size_t n = (size_t)snprintf(buf, size, "%.*g", digits, v);

		if (strtod(buf, NULL) == v)
			return n;
	}
	return (size_t)snprintf(buf, size, "%.17g", v);
}

/* ---- values inside of lists and maps: JSON ---- */

static int append_json(struct buffer *b, const Otlp__AnyValue *v, unsigned int depth,
		       struct arena *arena, struct why *why);

static int append_list(struct buffer *b, ProtobufCBinaryData bytes, unsigned int depth,
		       struct arena *arena, struct why *why)
{
	Otlp__ArrayValue *list = otlp__array_value__unpack(&arena->allocator, bytes.len,
							   bytes.data);
	int err = buffer_append(b, "[", 1);

	if (!list)
		return why_fail(why, EINVAL, "an attribute's list is not an ArrayValue");
	for (size_t i = 0; !err && i < list->n_values; i++) {
		err = i ? buffer_append(b, ",", 1) : 0;
		err = err ?: append_json(b, list->values[i], depth, arena, why);
	}
	return err ?: buffer_append(b, "]", 1);
}

static int append_map(struct buffer *b, ProtobufCBinaryData bytes, unsigned int depth,
		      struct arena *arena, struct why *why)
{
	Otlp__KeyValueList *map = otlp__key_value_list__unpack(&arena->allocator, bytes.len,
							       bytes.data);
	int err = buffer_append(b, "{", 1);

	if (!map)
		return why_fail(why, EINVAL, "an attribute's map is not a KeyValueList");
	for (size_t i = 0; !err && i < map->n_values; i++) {
		err = i ? buffer_append(b, ",", 1) : 0;
		err = err ?: otlp_append_string(b, otlp_text(map->values[i]->key));
		err = err ?: buffer_append(b, ":", 1);
		err = err ?: append_json(b, map->values[i]->value, depth, arena, why);
	}
	return err ?: buffer_append(b, "}", 1);
}

/* Lists and maps; `depth`: levels around the value. */
static int append_nested(struct buffer *b, const Otlp__AnyValue *v, unsigned int depth,
			 struct arena *arena, struct why *why)
{
	if (depth >= OTLP_MAX_DEPTH)
		return why_fail(why, EINVAL, "an attribute's value is nested more than %d deep",
				OTLP_MAX_DEPTH);
	return v->value_case == OTLP__ANY_VALUE__VALUE_ARRAY_VALUE
		       ? append_list(b, v->array_value, depth + 1, arena, why)
		       : append_map(b, v->kvlist_value, depth + 1, arena, why);
}

/* Bool, integer, double, nothing. */
static int append_scalar(struct buffer *b, const Otlp__AnyValue *v)
{
	char text[40] = "";
	size_t n = 0;

	switch (v->value_case) {
	case OTLP__ANY_VALUE__VALUE_BOOL_VALUE:
		n = (size_t)snprintf(text, sizeof(text), v->bool_value ? "true" : "false");
		break;
	case OTLP__ANY_VALUE__VALUE_INT_VALUE:
		n = (size_t)snprintf(text, sizeof(text), "%lld", (long long)v->int_value);
		break;
	case OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE:
		n = print_double(text, sizeof(text), v->double_value);
		break;
	default:
		break;
	}
	return buffer_append(b, text, n);
}

static int append_json(struct buffer *b, const Otlp__AnyValue *v, unsigned int depth,
		       struct arena *arena, struct why *why)
{
	int err;

	switch (v ? v->value_case : OTLP__ANY_VALUE__VALUE__NOT_SET) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		return otlp_append_string(b, otlp_text(v->string_value));
	case OTLP__ANY_VALUE__VALUE_BYTES_VALUE:
		err = buffer_append(b, "\"", 1);
		err = err ?: base64_append(b, otlp_text(v->bytes_value));
		return err ?: buffer_append(b, "\"", 1);
	case OTLP__ANY_VALUE__VALUE_ARRAY_VALUE:
	case OTLP__ANY_VALUE__VALUE_KVLIST_VALUE:
		return append_nested(b, v, depth, arena, why);
	case OTLP__ANY_VALUE__VALUE__NOT_SET:
		return buffer_append(b, "null", 4);
	case OTLP__ANY_VALUE__VALUE_DOUBLE_VALUE:
		if (!isfinite(v->double_value)) /* not a JSON number */
			return buffer_append(b, "null", 4);
		break;
	default:
		break;
	}
	return append_scalar(b, v);
}

/* ---- an attribute's value: text ---- */

int otlp_append_value(struct buffer *b, const Otlp__AnyValue *v, struct arena *arena,
		      struct why *why)
{
	struct text text;

	switch (v ? v->value_case : OTLP__ANY_VALUE__VALUE__NOT_SET) {
	case OTLP__ANY_VALUE__VALUE__NOT_SET:
		return 0;
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		text = otlp_text(v->string_value);
		return buffer_append(b, text.at, text.len);
	case OTLP__ANY_VALUE__VALUE_BYTES_VALUE:
		return base64_append(b, otlp_text(v->bytes_value));
	case OTLP__ANY_VALUE__VALUE_ARRAY_VALUE:
	case OTLP__ANY_VALUE__VALUE_KVLIST_VALUE:
		return append_nested(b, v, 0, arena, why);
	default:
		return append_scalar(b, v);
	}
}

int otlp_append_attributes(struct buffer *b, Otlp__KeyValue *const *attributes, size_t n,
			   struct arena *arena, struct why *why)
{
	struct buffer value = { 0 };
	int err = buffer_append(b, "{", 1);

	for (size_t i = 0; !err && i < n; i++) {
		value.len = 0;
		err = otlp_append_value(&value, attributes[i]->value, arena, why);
		if (!err && i)
			err = buffer_append(b, ",", 1);
		err = err ?: otlp_append_string(b, otlp_text(attributes[i]->key));
		err = err ?: buffer_append(b, ":", 1);
		err = err ?: otlp_append_string(b, (struct text){ value.data ?: "", value.len });
		/* names the attribute once the row would be too large */
		if (!err && b->len > OTLP_MAX_ROW_BYTES)
			err = why_fail(why, E2BIG, "attributes of more than %d bytes",
				       OTLP_MAX_ROW_BYTES);
	}
	buffer_free(&value);
	return err ?: buffer_append(b, "}", 1);
}
