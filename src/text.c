// SPDX-License-Identifier: Apache-2.0
/* Texts that came from elsewhere. See text.h. */
#include "text.h"

#include <stdbool.h>
#include <string.h>

/* Controls (also U+0080 to U+009F, which some terminals obey), and what XML has no place for. */
static bool is_bad(const unsigned char *s, size_t n)
{
	if (n == 1)
		return s[0] < 0x20 || s[0] == 0x7f;
	if (n == 2)
		return s[0] == 0xc2 && s[1] < 0xa0;
	/* U+2028 and U+2029 end lines, U+202A to U+202E turn the direction of what follows */
	if (n == 3 && s[0] == 0xe2 && s[1] == 0x80)
		return s[2] >= 0xa8 && s[2] <= 0xae;
	return n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe; /* U+FFFE, U+FFFF */
}

char *text_printable(char *to, size_t size, const char *from)
{
	const unsigned char *s = (const unsigned char *)from;
	size_t left = strlen(from), at = 0;

	while (left) {
		size_t n = utf8_sequence(s, left), used = n ? n : 1;
		bool bad = !n || is_bad(s, n);

		if (at + (bad ? 1 : n) >= size)
			break;
		if (bad) {
			to[at++] = '?';
		} else {
			memcpy(to + at, s, n);
			at += n;
		}
		s += used;
		left -= used;
	}
	to[at] = 0;
	return to;
}

static bool begins_character(char c)
{
	return ((unsigned char)c & 0xc0) != 0x80;
}

size_t text_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += begins_character(*text);
	return n;
}

size_t text_prefix(const char *text, size_t columns)
{
	size_t n = 0, at;

	for (at = 0; text[at]; at++) {
		if (begins_character(text[at]) && n++ == columns)
			break;
	}
	return at;
}
