/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that came from elsewhere: names of threads, functions and files are whatever somebody made
 * of them.
 */
#ifndef UNDERSPAN_TEXT_H
#define UNDERSPAN_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 if there is none. */
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

/*
 * Copies a text so that it is one line of well-formed UTF-8 that steers no terminal and is allowed
 * in XML: each character that is not becomes a '?'. Cut at `size`, never within a character.
 * Returns `to`.
 */
char *text_printable(char *to, size_t size, const char *from);

/* How many columns of a terminal it takes: East Asia's characters two, combining marks none. */
size_t text_width(const char *text);

/*
 * How many bytes of it fit into so many columns, never part of a character. `ret_width`, the
 * columns that these take, may be NULL.
 */
size_t text_prefix(const char *text, size_t columns, size_t *ret_width);

#endif
