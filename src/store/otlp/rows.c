// SPDX-License-Identifier: Apache-2.0
/* Spans as rows of otel_traces; the responses. See traces.h. */
#include "store/otlp/traces.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8 };

/* 2001 to 2262: the range of DateTime64(9), without unset clocks. */
static const uint64_t min_time_ns = 1000000000000000000, max_time_ns = INT64_MAX;

/* Resource and scope of the spans that follow, as text. */
struct around {
	struct buffer service, resource; /* text; a JSON object */
	struct text scope_name, scope_version;
};

struct writer {
	struct buffer *rows;
	struct arena *arena;
	struct otlp_result *result;
	struct around around;
};

static int append_hex(struct buffer *b, ProtobufCBinaryData id)
{
	int err = buffer_append(b, "\"", 1);

	for (size_t i = 0; !err && i < id.len; i++) {
		char digits[3];

		snprintf(digits, sizeof(digits), "%02x", id.data[i]);
		err = buffer_append(b, digits, 2);
	}
	return err ?: buffer_append(b, "\"", 1);
}

/* ,"name": */
static int append_name(struct buffer *b, const char *name)
{
	char text[64];

	return buffer_append(b, text, (size_t)snprintf(text, sizeof(text), ",\"%s\":", name));
}

static int append_text(struct buffer *b, const char *name, struct text text)
{
	int err = append_name(b, name);

	return err ?: otlp_append_string(b, text);
}

static int append_uint(struct buffer *b, uint64_t v)
{
	char text[24];

	return buffer_append(b, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, v));
}

/* ---- checks ---- */

static bool is_id(ProtobufCBinaryData id, size_t len)
{
	static const uint8_t zeros[TRACE_ID_BYTES];

	return id.len == len && memcmp(id.data, zeros, len) != 0;
}

static bool is_time(uint64_t ns)
{
	return ns >= min_time_ns && ns <= max_time_ns;
}

static int check_span(const Otlp__Span *s, struct why *why)
{
	if (!is_id(s->trace_id, TRACE_ID_BYTES))
		return why_fail(why, EINVAL, "traceId is not 16 bytes with at least one set");
	if (!is_id(s->span_id, SPAN_ID_BYTES))
		return why_fail(why, EINVAL, "spanId is not 8 bytes with at least one set");
	if (s->parent_span_id.len && s->parent_span_id.len != SPAN_ID_BYTES)
		return why_fail(why, EINVAL, "parentSpanId is not 8 bytes");
	if (!is_time(s->start_time_unix_nano) || !is_time(s->end_time_unix_nano))
		return why_fail(why, EINVAL,
				"startTimeUnixNano or endTimeUnixNano is not between the years "
				"2001 and 2262");
	if (s->end_time_unix_nano < s->start_time_unix_nano)
		return why_fail(why, EINVAL, "endTimeUnixNano is before startTimeUnixNano");
	for (size_t i = 0; i < s->n_events; i++) {
		if (s->events[i]->time_unix_nano > max_time_ns)
			return why_fail(why, EINVAL, "timeUnixNano of an event is after 2262");
	}
	for (size_t i = 0; i < s->n_links; i++) {
		if (!is_id(s->links[i]->trace_id, TRACE_ID_BYTES) ||
		    !is_id(s->links[i]->span_id, SPAN_ID_BYTES))
			return why_fail(why, EINVAL, "a link's traceId or spanId is not an id");
	}
	return 0;
}

/* ---- a row ---- */

static const char *kind_name(int32_t kind)
{
	static const char *const names[] = { "Unspecified", "Internal", "Server",
					     "Client",	    "Producer", "Consumer" };

	return kind >= 0 && kind < (int32_t)ARRAY_SIZE(names) ? names[kind] : names[0];
}

static const char *status_name(const Otlp__Status *status)
{
	static const char *const names[] = { "Unset", "Ok", "Error" };
	int32_t code = status ? status->code : 0;

	return code >= 0 && code < (int32_t)ARRAY_SIZE(names) ? names[code] : names[0];
}

static int append_attributes(struct writer *w, const char *name, Otlp__KeyValue **attributes,
			     size_t n, struct why *why)
{
	int err = append_name(w->rows, name);

	return err ?: otlp_append_attributes(w->rows, attributes, n, w->arena, why);
}

/* Nested columns are lists of equal length. LIST appends the value of element `i`. */
#define APPEND_LIST(b, name, n, append_element)                                                    \
	({                                                                                         \
		int list_err = append_name(b, name) ?: buffer_append(b, "[", 1);                   \
		for (size_t i = 0; !list_err && i < (n); i++) {                                    \
			if (i)                                                                     \
				list_err = buffer_append(b, ",", 1);                               \
			list_err = list_err ?: (append_element);                                   \
		}                                                                                  \
		list_err ?: buffer_append(b, "]", 1);                                              \
	})

static int append_events(struct writer *w, const Otlp__Span *s, struct why *why)
{
	struct buffer *b = w->rows;
	Otlp__Span__Event **e = s->events;
	size_t n = s->n_events;
	int err = APPEND_LIST(b, "Events.Timestamp", n, append_uint(b, e[i]->time_unix_nano));

	err = err ?: APPEND_LIST(b, "Events.Name", n, otlp_append_string(b, otlp_text(e[i]->name)));
	return err
		       ?: APPEND_LIST(b, "Events.Attributes", n,
				      otlp_append_attributes(b, e[i]->attributes,
							     e[i]->n_attributes, w->arena, why));
}

static int append_links(struct writer *w, const Otlp__Span *s, struct why *why)
{
	struct buffer *b = w->rows;
	Otlp__Span__Link **l = s->links;
	size_t n = s->n_links;
	int err = APPEND_LIST(b, "Links.TraceId", n, append_hex(b, l[i]->trace_id));

	err = err ?: APPEND_LIST(b, "Links.SpanId", n, append_hex(b, l[i]->span_id));
	err = err
		      ?: APPEND_LIST(b, "Links.TraceState", n,
				     otlp_append_string(b, otlp_text(l[i]->trace_state)));
	return err
		       ?: APPEND_LIST(b, "Links.Attributes", n,
				      otlp_append_attributes(b, l[i]->attributes,
							     l[i]->n_attributes, w->arena, why));
}

static int append_ids(struct buffer *b, const Otlp__Span *s)
{
	const ProtobufCBinaryData none = { 0 };
	int err = buffer_append(b, "{\"Timestamp\":", 13);

	err = err ?: append_uint(b, s->start_time_unix_nano);
	err = err ?: append_name(b, "Duration");
	err = err ?: append_uint(b, s->end_time_unix_nano - s->start_time_unix_nano);
	err = err ?: append_name(b, "TraceId") ?: append_hex(b, s->trace_id);
	err = err ?: append_name(b, "SpanId") ?: append_hex(b, s->span_id);
	/* zeros are no id: the trace's root */
	return err
		       ?: append_name(b, "ParentSpanId")
		       ?: append_hex(b, is_id(s->parent_span_id, SPAN_ID_BYTES) ? s->parent_span_id : none);
}

static int append_texts(struct writer *w, const Otlp__Span *s)
{
	const char *kind = kind_name(s->kind), *status = status_name(s->status);
	struct text message = s->status ? otlp_text(s->status->message) : (struct text){ "", 0 };
	struct around *a = &w->around;
	struct buffer *b = w->rows;
	int err = append_text(b, "TraceState", otlp_text(s->trace_state));

	err = err ?: append_text(b, "SpanName", otlp_text(s->name));
	err = err ?: append_text(b, "SpanKind", (struct text){ kind, strlen(kind) });
	err = err
		      ?: append_text(b, "ServiceName",
				     (struct text){ a->service.data ?: "", a->service.len });
	err = err ?: append_name(b, "ResourceAttributes");
	err = err ?: buffer_append(b, a->resource.data, a->resource.len);
	err = err ?: append_text(b, "ScopeName", a->scope_name);
	err = err ?: append_text(b, "ScopeVersion", a->scope_version);
	err = err ?: append_text(b, "StatusCode", (struct text){ status, strlen(status) });
	return err ?: append_text(b, "StatusMessage", message);
}

/* 0, -EINVAL or -E2BIG (this span is rejected), -ENOMEM. */
static int append_span(struct writer *w, const Otlp__Span *s, struct why *why)
{
	size_t before = w->rows->len;
	int err = check_span(s, why);

	err = err ?: append_ids(w->rows, s);
	err = err ?: append_texts(w, s);
	err = err ?: append_attributes(w, "SpanAttributes", s->attributes, s->n_attributes, why);
	err = err ?: append_events(w, s, why);
	err = err ?: append_links(w, s, why);
	err = err ?: buffer_append(w->rows, "}\n", 2);
	if (!err && w->rows->len - before > OTLP_MAX_ROW_BYTES)
		err = why_fail(why, E2BIG, "a span of more than %d bytes", OTLP_MAX_ROW_BYTES);
	if (err)
		w->rows->len = before;
	return err;
}

/* ---- a request ---- */

static void reject(struct otlp_result *r, uint64_t spans, const struct why *why)
{
	if (!r->rejected)
		r->why = *why;
	r->rejected += spans;
}

/* A rejected span does not affect further spans. */
static int add_span(struct writer *w, const Otlp__Span *s, struct why *why)
{
	struct why one = { { 0 } };
	int err = append_span(w, s, &one);

	if (w->arena->over)
		return why_fail(why, EFBIG, "more than %d bytes when decoded; send fewer spans",
				OTLP_MAX_DECODED_BYTES);
	if (err == -EINVAL || err == -E2BIG)
		reject(w->result, 1, &one);
	else if (err)
		return err;
	else
		w->result->accepted++;
	return w->rows->len > OTLP_MAX_ROWS_BYTES
		       ? why_fail(why, EFBIG,
				  "more than %d bytes as rows (each row has the resource's "
				  "attributes); send fewer spans",
				  OTLP_MAX_ROWS_BYTES)
		       : 0;
}

/* 0, -EINVAL or -E2BIG: all spans of the resource are rejected. */
static int set_resource(struct writer *w, const Otlp__Resource *resource, struct why *why)
{
	static const char service_name[] = "service.name";
	struct around *a = &w->around;
	size_t n = resource ? resource->n_attributes : 0;
	int err = 0;

	a->service.len = a->resource.len = 0;
	for (size_t i = 0; i < n; i++) {
		const Otlp__KeyValue *attribute = resource->attributes[i];
		struct text key = otlp_text(attribute->key);

		if (key.len != strlen(service_name) || memcmp(key.at, service_name, key.len) != 0)
			continue;
		err = otlp_append_value(&a->service, attribute->value, w->arena, why);
		break; /* the first of equal keys is what ResourceAttributes['service.name'] gives
			*/
	}
	return err
		       ?: otlp_append_attributes(&a->resource,
						 resource ? resource->attributes : NULL, n,
						 w->arena, why);
}

static int add_resource(struct writer *w, const Otlp__ResourceSpans *r, struct why *why)
{
	struct why one = { { 0 } };
	int err = 0, wrong = set_resource(w, r->resource, &one);

	if (wrong == -ENOMEM)
		return wrong;
	for (size_t i = 0; !err && i < r->n_scope_spans; i++) {
		const Otlp__ScopeSpans *scope = r->scope_spans[i];

		if (wrong) {
			reject(w->result, scope->n_spans, &one);
			continue;
		}
		w->around.scope_name = w->around.scope_version = (struct text){ "", 0 };
		if (scope->scope) {
			w->around.scope_name = otlp_text(scope->scope->name);
			w->around.scope_version = otlp_text(scope->scope->version);
		}
		for (size_t j = 0; !err && j < scope->n_spans; j++)
			err = add_span(w, scope->spans[j], why);
	}
	return err;
}

static Otlp__ExportTraceServiceRequest *decode(struct text body, enum otlp_encoding encoding,
					       struct arena *arena, struct why *why)
{
	if (encoding == OTLP_JSON)
		return otlp_from_json(body, arena, why);
	why_fail(why, EBADMSG, "not an ExportTraceServiceRequest in protobuf");
	return otlp__export_trace_service_request__unpack(&arena->allocator, body.len,
							  (const uint8_t *)body.at);
}

int otlp_rows(struct text body, enum otlp_encoding encoding, struct buffer *rows,
	      struct otlp_result *result, struct why *why)
{
	Otlp__ExportTraceServiceRequest *request;
	struct arena arena;
	struct writer w = { .rows = rows, .arena = &arena, .result = result };
	int err = 0;

	*result = (struct otlp_result){ 0 };
	arena_init(&arena, OTLP_MAX_DECODED_BYTES);
	request = decode(body, encoding, &arena, why);
	for (size_t i = 0; request && !err && i < request->n_resource_spans; i++)
		err = add_resource(&w, request->resource_spans[i], why);
	if (!request && arena.over)
		err = why_fail(why, EFBIG, "more than %d bytes when decoded; send fewer spans",
			       OTLP_MAX_DECODED_BYTES);
	else if (!request)
		err = -EBADMSG;
	else if (err == -ENOMEM)
		why_fail(why, ENOMEM, "out of memory");
	buffer_free(&w.around.service);
	buffer_free(&w.around.resource);
	arena_free(&arena);
	return err;
}

/* ---- responses ---- */

/* Packs a message behind the contents of the buffer. */
static int pack(const ProtobufCMessage *message, struct buffer *b)
{
	size_t n = protobuf_c_message_get_packed_size(message);
	int err = buffer_reserve(b, n ?: 1);

	if (!err)
		b->len += protobuf_c_message_pack(message, (uint8_t *)b->data + b->len);
	return err;
}

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)text };
}

int otlp_success(enum otlp_encoding encoding, const struct otlp_result *result, struct buffer *b)
{
	Otlp__ExportTraceServiceResponse response = OTLP__EXPORT_TRACE_SERVICE_RESPONSE__INIT;
	Otlp__ExportTracePartialSuccess partial = OTLP__EXPORT_TRACE_PARTIAL_SUCCESS__INIT;
	char text[96];
	int err;

	if (encoding == OTLP_PROTOBUF) {
		partial.rejected_spans = (int64_t)result->rejected;
		partial.error_message = bytes_of(result->why.text);
		if (result->rejected)
			response.partial_success = &partial;
		return pack(&response.base, b);
	}
	if (!result->rejected)
		return buffer_append(b, "{}", 2);
	snprintf(text, sizeof(text),
		 "{\"partialSuccess\":{\"rejectedSpans\":\"%" PRIu64 "\",\"errorMessage\":",
		 result->rejected);
	err = buffer_append(b, text, strlen(text));
	err = err
		      ?: otlp_append_string(
				 b, (struct text){ result->why.text, strlen(result->why.text) });
	return err ?: buffer_append(b, "}}", 2);
}

int otlp_refusal(enum otlp_encoding encoding, const char *message, struct buffer *b)
{
	Otlp__RpcStatus status = OTLP__RPC_STATUS__INIT;
	int err;

	if (encoding == OTLP_PROTOBUF) {
		status.message = bytes_of(message);
		return pack(&status.base, b);
	}
	err = buffer_append(b, "{\"message\":", 11);
	err = err ?: otlp_append_string(b, (struct text){ message, strlen(message) });
	return err ?: buffer_append(b, "}", 1);
}
