// SPDX-License-Identifier: Apache-2.0
/* Texts that came from elsewhere. See text.h. */
#include "text.h"

#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <wchar.h>

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

/* wcwidth() asks the thread's locale, which is none of ours to set for good. */
static locale_t utf8_locale(void)
{
	static locale_t utf8;

	if (!utf8)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	return utf8 ? utf8 : LC_GLOBAL_LOCALE;
}

/* The columns of the character at `text`, in the locale above. What is none takes one. */
static size_t width_of(const char *text, size_t len, size_t *ret_bytes)
{
	mbstate_t state = { 0 };
	wchar_t c;
	size_t n = mbrtowc(&c, text, len, &state);
	int width;

	*ret_bytes = 1;
	if (!n || n > len)
		return 1;
	*ret_bytes = n;
	width = wcwidth(c);
	return width < 0 ? 1 : (size_t)width;
}

size_t text_prefix(const char *text, size_t columns, size_t *ret_width)
{
	locale_t before = uselocale(utf8_locale());
	size_t left = strlen(text), at = 0, used = 0, bytes;

	while (left) {
		size_t width = width_of(text + at, left, &bytes);

		if (width > columns - used)
			break;
		used += width;
		at += bytes;
		left -= bytes;
	}
	uselocale(before);
	if (ret_width)
		*ret_width = used;
	return at;
}

size_t text_width(const char *text)
{
	size_t width;

	text_prefix(text, SIZE_MAX, &width);
	return width;
}
