/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Untrusted text: names of threads, functions and files may contain any bytes.
 */
#ifndef UNDERSPAN_BASE_TEXT_H
#define UNDERSPAN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"

/* Borrowed bytes, not NUL-terminated. */
struct text {
	const char *at;
	size_t len;
};

/* Length of the well-formed UTF-8 sequence at s (RFC 3629); 0: none. */
static inline size_t utf8_sequence(const unsigned char *s, size_t len)
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

/* Whether a character controls a terminal or is invalid in XML: controls, line ends, direction
 * changes. */
bool text_is_control(const unsigned char *sequence, size_t len);

/*
 * Copies a text as a single line of valid UTF-8 without terminal controls, allowed in XML: other
 * characters become '?'. Truncated at `size` between characters. Returns `to`.
 */
char *text_printable(char *to, size_t size, const char *from);

/*
 * Prints a line that may contain untrusted names, paths or messages: filtered as by
 * text_printable(), of any length, plus '\n'. `fmt` has no '\n'.
 */
void text_print_line(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends a line; one of 2,048 bytes and more, or without memory, is left out. */
void text_append(struct buffer *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints text of an element or an attribute of HTML, XML or SVG: markup is escaped. */
void text_print_markup(FILE *out, const char *text);

/* State between chunks of a streamed text: an incomplete character. Zero-initialized. */
struct terminal_text {
	char cut[4];
	size_t n;
};

/*
 * Prints a chunk filtered as by text_printable(), keeping line ends and tabs. 0 or -errno. (An
 * incomplete character at the very end is not printed.)
 */
int terminal_text_print(struct terminal_text *t, const char *bytes, size_t len, FILE *out);

/* Width in terminal columns: East Asian wide characters two, combining marks none. */
size_t text_width(const char *text);

/*
 * Bytes of the text that fit into `columns`, in complete characters. `ret_width` (may be NULL):
 * their width.
 */
size_t text_prefix(const char *text, size_t columns, size_t *ret_width);

#endif
