// SPDX-License-Identifier: Apache-2.0
/* Untrusted text. See text.h. */
#include "base/text.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* Controls, including U+0080 to U+009F (some terminals interpret them), and characters invalid in
 * XML. */
bool text_is_control(const unsigned char *s, size_t n)
{
	if (n == 1)
		return s[0] < 0x20 || s[0] == 0x7f;
	if (n == 2)
		return s[0] == 0xc2 && s[1] < 0xa0;
	/* U+2028 and U+2029 end lines, U+202A to U+202E change the text direction */
	if (n == 3 && s[0] == 0xe2 && s[1] == 0x80)
		return s[2] >= 0xa8 && s[2] <= 0xae;
	if (n == 3 && s[0] == 0xe2 && s[1] == 0x81) /* U+2066 to U+2069 */
		return s[2] >= 0xa6 && s[2] <= 0xa9;
	return n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe; /* U+FFFE, U+FFFF */
}

char *text_printable(char *to, size_t size, const char *from)
{
	const unsigned char *s = (const unsigned char *)from;
	size_t left = strlen(from), at = 0;

	while (left) {
		size_t n = utf8_sequence(s, left), used = n ? n : 1;
		bool bad = !n || text_is_control(s, n);

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

void text_print_line(FILE *out, const char *fmt, ...)
{
	char *said, *line;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&said, fmt, ap) < 0)
		said = NULL;
	va_end(ap);
	line = said ? malloc(strlen(said) + 1) : NULL; /* the filter never lengthens */
	if (line)
		fprintf(out, "%s\n", text_printable(line, strlen(said) + 1, said));
	free(line);
	free(said);
}

/* Whether further bytes could complete a character. */
static bool is_cut(const unsigned char *s, size_t len)
{
	size_t whole = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 1;

	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return false;
	}
	return s[0] < 0xf5 && len < whole;
}

static void print_character(const unsigned char *s, size_t n, FILE *out)
{
	if (n == 1 && (*s == '\n' || *s == '\t'))
		putc(*s, out);
	else if (!n || text_is_control(s, n))
		putc('?', out);
	else
		fwrite(s, 1, n, out);
}

int terminal_text_print(struct terminal_text *t, const char *bytes, size_t len, FILE *out)
{
	const unsigned char *s = (const unsigned char *)bytes;
	size_t n;

	while (len) {
		/* appended byte by byte to an incomplete character; otherwise in place */
		if (t->n) {
			t->cut[t->n++] = (char)*s;
			n = utf8_sequence((unsigned char *)t->cut, t->n);
			if (!n && is_cut((unsigned char *)t->cut, t->n)) {
				s++, len--;
				continue;
			}
			/* not a character: each byte before this byte is invalid */
			for (size_t i = n ? 0 : 2; i < t->n && !n; i++)
				putc('?', out);
			print_character((unsigned char *)t->cut, n, out);
			s += n > 0, len -= n > 0;
			t->n = 0;
			continue;
		}
		n = utf8_sequence(s, len);
		if (!n && is_cut(s, len)) {
			memcpy(t->cut, s, len);
			t->n = len;
			break;
		}
		print_character(s, n, out);
		s += n ? n : 1;
		len -= n ? n : 1;
	}
	return ferror(out) ? -(errno ?: EIO) : 0;
}

/* wcwidth() depends on the thread's locale, which must not be changed permanently. */
static locale_t utf8_locale(void)
{
	static locale_t utf8;

	if (!utf8)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	return utf8 ? utf8 : LC_GLOBAL_LOCALE;
}

/* Width of the character at `text` in the locale above; 1 for invalid bytes. */
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

void text_append(struct buffer *to, const char *fmt, ...)
{
	char line[2048];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n > 0 && n < (int)sizeof(line))
		buffer_append(to, line, (size_t)n);
}

void text_print_markup(FILE *out, const char *text)
{
	for (const char *c = text; *c; c++) {
		if (*c == '&')
			fputs("&amp;", out);
		else if (*c == '<')
			fputs("&lt;", out);
		else if (*c == '>')
			fputs("&gt;", out);
		else if (*c == '"')
			fputs("&quot;", out);
		else
			fputc(*c, out);
	}
}
