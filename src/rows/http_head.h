/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request says of itself: method, path and trace context, from the first bytes that a
 * server read. The bytes are a client's: anything is possible, and an ambiguous head gives no trace
 * id rather than one that the server may read differently.
 */
#ifndef UNDERSPAN_ROWS_HTTP_HEAD_H
#define UNDERSPAN_ROWS_HTTP_HEAD_H

#include <stddef.h>

/* Bytes that the parser has use for: the first ones of a read, and its last ones if it was longer.
 */
enum { HTTP_HEAD_FIRST = 1024, HTTP_HEAD_LAST = 256 };

/* Printable, NUL-terminated; '' where the bytes do not tell. */
struct http_head {
	char method[16];
	char path[257]; /* as sent (not decoded), without host, query and fragment */
	char trace_id[33];
	char parent_span_id[17];
};

/*
 * Parses a head of HTTP/1, or of uwsgi's binary protocol (first byte 0). The piece that begins at
 * `tail_at` is the end of the same read, with bytes left out before it; n: nothing was left out.
 *
 * The tail counts where it must belong to the head: a method without a body, the blank line of the
 * head at the very end and nowhere before.
 */
void http_head_parse(const char *bytes, size_t n, size_t tail_at, struct http_head *ret);

#endif
