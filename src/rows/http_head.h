/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Method, path and trace context of a request, from the first bytes that a server read. The bytes
 * come from a client: untrusted. An ambiguous head gives no trace id, since the server may read the
 * head differently.
 */
#ifndef UNDERSPAN_ROWS_HTTP_HEAD_H
#define UNDERSPAN_ROWS_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that the parser uses: the first of a read, and the last of a longer read. */
enum { HTTP_HEAD_FIRST = 1024, HTTP_HEAD_LAST = 256 };

/* Printable, NUL-terminated; '': unknown. */
struct http_head {
	char method[16];
	char path[257]; /* as sent (not decoded), without host, query and fragment */
	char trace_id[33];
	char parent_span_id[17];
	bool cut; /* not all lines of the head are there */
};

/*
 * Parses a head of HTTP/1, or of uwsgi's binary protocol (first byte 0). The bytes from `tail_at`
 * on are the end of the same read, after omitted bytes; n: nothing was omitted.
 *
 * The tail is used only if it must belong to the head: the method has no body, and the only blank
 * line is at the very end.
 */
void http_head_parse(const char *bytes, size_t n, size_t tail_at, struct http_head *ret);

#endif
