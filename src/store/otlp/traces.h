/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OTLP trace requests: from bytes of untrusted clients to rows of otel_traces, in the form of the
 * OpenTelemetry Collector's ClickHouse exporter. No I/O: receiver.c has the HTTP side. Functions
 * can run in several threads at a time.
 */
#ifndef UNDERSPAN_STORE_OTLP_TRACES_H
#define UNDERSPAN_STORE_OTLP_TRACES_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/text.h"
#include "base/util.h"
#include "store/otlp/arena.h"
#include "otlp.pb-c.h"

enum otlp_encoding { OTLP_PROTOBUF, OTLP_JSON };

enum {
	OTLP_MAX_DEPTH = 16,		    /* of lists and maps in an attribute's value */
	OTLP_MAX_DECODED_BYTES = 128 << 20, /* of one request */
	OTLP_MAX_ROW_BYTES = 1 << 20,	    /* of one span's row */
	OTLP_MAX_ROWS_BYTES = 64 << 20,	    /* of a request's rows */
};

struct otlp_result {
	uint64_t accepted, rejected; /* spans */
	struct why why;		     /* of the first rejected span */
};

/*
 * Decodes a body and appends a JSON line per accepted span. -EBADMSG: not a request; -EFBIG: over a
 * limit; -ENOMEM. On an error `rows` has to be dropped.
 */
int otlp_rows(struct text body, enum otlp_encoding encoding, struct buffer *rows,
	      struct otlp_result *ret_result, struct why *why);

/* The response after otlp_rows(), and the response of a refusal. 0 or -ENOMEM. */
int otlp_success(enum otlp_encoding encoding, const struct otlp_result *result,
		 struct buffer *response);
int otlp_refusal(enum otlp_encoding encoding, const char *message, struct buffer *response);

/* ---- between the files of this folder ---- */

/* The JSON mapping. NULL: see `why`, or the arena is over its limit. */
Otlp__ExportTraceServiceRequest *otlp_from_json(struct text body, struct arena *arena,
						struct why *why);

/* Appends "text" as a JSON string; bytes that are not UTF-8 become U+FFFD. */
int otlp_append_string(struct buffer *b, struct text text);

/* Appends {"key": "value as text", ...}. -EINVAL with why: a value nested too deeply or broken. */
int otlp_append_attributes(struct buffer *b, Otlp__KeyValue *const *attributes, size_t n,
			   struct arena *arena, struct why *why);

/* Appends the value's text, without quotes. */
int otlp_append_value(struct buffer *b, const Otlp__AnyValue *value, struct arena *arena,
		      struct why *why);

static inline struct text otlp_text(ProtobufCBinaryData d)
{
	return (struct text){ d.data ? (const char *)d.data : "", d.data ? d.len : 0 };
}

#endif
