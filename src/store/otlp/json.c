// SPDX-License-Identifier: Apache-2.0
/*
 * OTLP/JSON: jansson's values become the generated structs, by protobuf-c's descriptors. Ids are
 * hex digits, 64-bit integers are texts or numbers, enums are numbers, keys are lowerCamelCase (or
 * the names of otlp.proto); unknown keys are ignored. See traces.h.
 */
#include "store/otlp/traces.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/base64.h"

struct mapping {
	struct arena *arena;
	struct why *why;
	unsigned int depth; /* of attribute values */
};

static int fill(struct mapping *m, const json_t *object, const ProtobufCMessageDescriptor *d,
		ProtobufCMessage *message);

/* "startTimeUnixNano" for start_time_unix_nano */
static bool is_name_of(const char *key, const char *field)
{
	const char *k = key, *f = field;

	if (!strcmp(key, field))
		return true;
	for (; *f && *k; f++, k++) {
		bool upper = *f == '_';

		f += upper;
		if (*k != (upper ? (char)toupper((unsigned char)*f) : *f))
			return false;
	}
	return !*f && !*k;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d,
						  const char *key)
{
	for (unsigned int i = 0; i < d->n_fields; i++) {
		if (is_name_of(key, d->fields[i].name))
			return &d->fields[i];
	}
	return NULL;
}

static int expected(struct mapping *m, const ProtobufCFieldDescriptor *f, const char *what)
{
	return why_fail(m->why, EBADMSG, "%s: expected %s", f->name, what);
}

static void *new_message(struct mapping *m, const ProtobufCMessageDescriptor *d)
{
	ProtobufCMessage *message = arena_alloc(m->arena, d->sizeof_message);

	if (message)
		protobuf_c_message_init(d, message);
	return message;
}

/* ---- bytes ---- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int set_hex(struct mapping *m, const ProtobufCFieldDescriptor *f, struct text text,
		   ProtobufCBinaryData *to)
{
	to->len = text.len / 2;
	to->data = arena_alloc(m->arena, to->len ?: 1);
	if (!to->data)
		return -EFBIG;
	if (text.len % 2)
		return expected(m, f, "an even number of hex digits");
	for (size_t i = 0; i < to->len; i++) {
		int high = hex_value(text.at[2 * i]), low = hex_value(text.at[2 * i + 1]);

		if (high < 0 || low < 0)
			return expected(m, f, "hex digits");
		to->data[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

static int set_base64(struct mapping *m, const ProtobufCFieldDescriptor *f, struct text text,
		      ProtobufCBinaryData *to)
{
	size_t size = base64_decoded_max(text.len);
	long n;

	to->data = arena_alloc(m->arena, size);
	if (!to->data)
		return -EFBIG;
	n = base64_decode(text, to->data, size);
	if (n < 0)
		return expected(m, f, "base64");
	to->len = (size_t)n;
	return 0;
}

/* A list or a map of an attribute: packed, as in the protobuf form. */
static int set_nested(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		      const ProtobufCMessageDescriptor *d, ProtobufCBinaryData *to)
{
	ProtobufCMessage *message = new_message(m, d);
	int err;

	if (!message)
		return -EFBIG;
	if (m->depth >= OTLP_MAX_DEPTH)
		return why_fail(m->why, EBADMSG, "%s: nested more than %d deep", f->name,
				OTLP_MAX_DEPTH);
	m->depth++;
	err = fill(m, v, d, message);
	m->depth--;
	if (err)
		return err;
	to->len = protobuf_c_message_get_packed_size(message);
	to->data = arena_alloc(m->arena, to->len ?: 1);
	if (!to->data)
		return -EFBIG;
	protobuf_c_message_pack(message, to->data);
	return 0;
}

static bool is_one_of(const char *name, const char *a, const char *b, const char *c)
{
	return !strcmp(name, a) || !strcmp(name, b) || !strcmp(name, c);
}

static int set_bytes(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		     ProtobufCBinaryData *to)
{
	struct text text = { json_string_value(v), json_string_length(v) };

	if (!strcmp(f->name, "array_value"))
		return set_nested(m, f, v, &otlp__array_value__descriptor, to);
	if (!strcmp(f->name, "kvlist_value"))
		return set_nested(m, f, v, &otlp__key_value_list__descriptor, to);
	if (!json_is_string(v))
		return expected(m, f, "a text");
	if (is_one_of(f->name, "trace_id", "span_id", "parent_span_id"))
		return set_hex(m, f, text, to);
	if (!strcmp(f->name, "bytes_value"))
		return set_base64(m, f, text, to);
	to->data = arena_alloc(m->arena, text.len ?: 1);
	if (!to->data)
		return -EFBIG;
	memcpy(to->data, text.at, text.len);
	to->len = text.len;
	return 0;
}

/* ---- numbers ---- */

static int set_uint64(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		      uint64_t *to)
{
	const char *text = json_string_value(v);
	char *end;

	if (json_is_integer(v) && json_integer_value(v) >= 0) {
		*to = (uint64_t)json_integer_value(v);
		return 0;
	}
	errno = 0;
	if (text && isdigit((unsigned char)*text)) {
		*to = strtoull(text, &end, 10);
		if (!errno && end == text + json_string_length(v))
			return 0;
	}
	return expected(m, f, "an unsigned integer of 64 bits, as text or number");
}

static int set_int64(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		     int64_t *to)
{
	const char *text = json_string_value(v);
	char *end;

	if (json_is_integer(v)) {
		*to = json_integer_value(v);
		return 0;
	}
	errno = 0;
	if (text && isdigit((unsigned char)text[*text == '-'])) {
		*to = strtoll(text, &end, 10);
		if (!errno && end == text + json_string_length(v))
			return 0;
	}
	return expected(m, f, "an integer of 64 bits, as text or number");
}

static int set_double(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		      double *to)
{
	const char *text = json_string_value(v);
	char *end;

	if (json_is_number(v)) {
		*to = json_number_value(v);
		return 0;
	}
	/* protobuf's JSON has numbers as texts, too; neither space nor hex digits, as strtod() has
	 */
	if (text && json_string_length(v) &&
	    strspn(text, "0123456789+-.eE") == json_string_length(v)) {
		*to = strtod(text, &end);
		if (!*end && isfinite(*to))
			return 0;
	}
	if (!text)
		return expected(m, f, "a number");
	if (!strcmp(text, "NaN"))
		*to = NAN;
	else if (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity"))
		*to = *text == '-' ? -INFINITY : INFINITY;
	else
		return expected(m, f, "a number");
	return 0;
}

static int set_int32(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		     int32_t *to)
{
	if (!json_is_integer(v) || json_integer_value(v) < INT32_MIN ||
	    json_integer_value(v) > INT32_MAX)
		return expected(m, f, "an integer of 32 bits (enums are numbers in OTLP/JSON)");
	*to = (int32_t)json_integer_value(v);
	return 0;
}

/* ---- messages ---- */

static int set_message(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		       ProtobufCMessage **to)
{
	ProtobufCMessage *message = new_message(m, f->descriptor);

	if (!message)
		return -EFBIG;
	*to = message;
	return fill(m, v, f->descriptor, message);
}

static int set_value(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		     void *to)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return set_message(m, f, v, to);
	case PROTOBUF_C_TYPE_BYTES:
		return set_bytes(m, f, v, to);
	case PROTOBUF_C_TYPE_FIXED64:
		return set_uint64(m, f, v, to);
	case PROTOBUF_C_TYPE_INT64:
		return set_int64(m, f, v, to);
	case PROTOBUF_C_TYPE_INT32:
		return set_int32(m, f, v, to);
	case PROTOBUF_C_TYPE_DOUBLE:
		return set_double(m, f, v, to);
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)to = json_is_true(v);
		return json_is_boolean(v) ? 0 : expected(m, f, "true or false");
	default:
		return expected(m, f, "nothing");
	}
}

/* Repeated fields of otlp.proto are messages. */
static int set_list(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *list,
		    ProtobufCMessage *message)
{
	size_t *n = (void *)((char *)message + f->quantifier_offset);
	ProtobufCMessage ***items = (void *)((char *)message + f->offset);
	const json_t *v;
	size_t i;
	int err = 0;

	if (!json_is_array(list))
		return expected(m, f, "a list");
	*n = 0;
	*items = arena_alloc(m->arena, (json_array_size(list) ?: 1) * sizeof(**items));
	if (!*items)
		return -EFBIG;
	json_array_foreach ((json_t *)list, i, v) {
		err = set_value(m, f, v, &(*items)[i]);
		if (err)
			return err;
		*n = i + 1;
	}
	return 0;
}

static int set_field(struct mapping *m, const ProtobufCFieldDescriptor *f, const json_t *v,
		     ProtobufCMessage *message)
{
	if (json_is_null(v))
		return 0;
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return set_list(m, f, v, message);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		*(uint32_t *)((char *)message + f->quantifier_offset) = f->id;
	return set_value(m, f, v, (char *)message + f->offset);
}

static int fill(struct mapping *m, const json_t *object, const ProtobufCMessageDescriptor *d,
		ProtobufCMessage *message)
{
	const char *key;
	json_t *v;

	if (!json_is_object(object))
		return why_fail(m->why, EBADMSG, "%s: expected an object", d->short_name);
	json_object_foreach ((json_t *)object, key, v) {
		const ProtobufCFieldDescriptor *f = find_field(d, key);
		int err = f ? set_field(m, f, v, message) : 0;

		if (err)
			return err;
	}
	return 0;
}

Otlp__ExportTraceServiceRequest *otlp_from_json(struct text body, struct arena *arena,
						struct why *why)
{
	struct mapping m = { .arena = arena, .why = why };
	Otlp__ExportTraceServiceRequest *request;
	json_error_t error;
	json_t *root;

	arena_limits_json(arena);
	root = json_loadb(body.at, body.len, JSON_ALLOW_NUL, &error);
	if (root) {
		request = new_message(&m, &otlp__export_trace_service_request__descriptor);
		if (request && fill(&m, root, request->base.descriptor, &request->base) < 0)
			request = NULL;
	} else {
		request = NULL;
		why_fail(why, EBADMSG, "not JSON: line %d: %s", error.line, error.text);
	}
	json_decref(root);
	arena_limits_json(NULL);
	return request;
}
