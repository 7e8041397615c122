// SPDX-License-Identifier: Apache-2.0
/* A request of OTLP/HTTP: the first byte says whether JSON or protobuf follows. */
#include "fuzz.h"

#include <jansson.h>

#include "store/otlp/traces.h"

/* Every line is a JSON object with the columns of a span. */
static void check_rows(const struct buffer *rows, uint64_t accepted)
{
	const char *at = rows->data ?: "", *end = at + rows->len;
	uint64_t lines = 0;

	for (; at < end; lines++) {
		const char *line = memchr(at, '\n', (size_t)(end - at));
		json_error_t error;
		json_t *row;

		MUST(line && line - at <= OTLP_MAX_ROW_BYTES);
		row = json_loadb(at, (size_t)(line - at), JSON_ALLOW_NUL, &error);
		at = line + 1;
		/* valid JSON that jansson does not read */
		if (!row && json_error_code(&error) == json_error_null_byte_in_key)
			continue;
		MUST(row && json_is_object(row));
		MUST(json_string_length(json_object_get(row, "TraceId")) == 32);
		MUST(json_string_length(json_object_get(row, "SpanId")) == 16);
		MUST(json_is_object(json_object_get(row, "SpanAttributes")));
		MUST(json_array_size(json_object_get(row, "Events.Name")) ==
		     json_array_size(json_object_get(row, "Events.Attributes")));
		json_decref(row);
	}
	MUST(lines == accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum otlp_encoding encoding = size && data[0] % 2 ? OTLP_JSON : OTLP_PROTOBUF;
	struct text body = { (const char *)data + 1, size ? size - 1 : 0 };
	struct buffer rows = { 0 }, response = { 0 };
	struct otlp_result result;
	struct why why = { { 0 } };
	static bool initialized;
	int err;

	if (!initialized)
		arena_init_json();
	initialized = true;
	if (!size)
		return 0;
	err = otlp_rows(body, encoding, &rows, &result, &why);
	if (err) {
		MUST(why.text[0]);
		MUST(!otlp_refusal(encoding, why.text, &response));
	} else {
		check_rows(&rows, result.accepted);
		MUST(!result.rejected || result.why.text[0]);
		MUST(!otlp_success(encoding, &result, &response));
	}
	buffer_free(&rows);
	buffer_free(&response);
	return 0;
}
