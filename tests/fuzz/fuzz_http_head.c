// SPDX-License-Identifier: Apache-2.0
/* The head of a request, as bytes of a client. The first byte sets where bytes were left out. */
#include "fuzz.h"

#include "base/text.h"
#include "rows/http_head.h"

static void check_printable(const char *text, size_t size)
{
	size_t len = strnlen(text, size), n;

	MUST(len < size);
	for (size_t at = 0; at < len; at += n) {
		const unsigned char *s = (const unsigned char *)text + at;

		n = utf8_sequence(s, len - at);
		MUST(n && !text_is_control(s, n));
	}
}

static void check_id(const char *id, size_t digits)
{
	MUST(!id[0] || (strspn(id, "0123456789abcdef") == digits && !id[digits]));
	MUST(!id[0] || strspn(id, "0") < digits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_head head;
	size_t n, tail_at;
	char *bytes;

	if (!size)
		return 0;
	n = size - 1;
	tail_at = data[0] ? n * data[0] / 256 : n;
	bytes = malloc(n ?: 1); /* exactly as large: sanitizers detect reads beyond the end */
	MUST(bytes);
	memcpy(bytes, data + 1, n);
	memset(&head, 0xff, sizeof(head));
	http_head_parse(bytes, n, tail_at, &head);
	free(bytes);
	check_printable(head.method, sizeof(head.method));
	check_printable(head.path, sizeof(head.path));
	check_id(head.trace_id, 32);
	check_id(head.parent_span_id, 16);
	MUST(!head.trace_id[0] == !head.parent_span_id[0]);
	return 0;
}
