// SPDX-License-Identifier: Apache-2.0
/* Self-contained HTML pages. See page.h. */
#include "html/page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "base/version.h"

#define ELLIPSIS "\u2026"

/* Bytes; base.js shows no more. Of a longer text the begin and the end. */
enum { TEXT_MAX = 4000, TEXT_TAIL = TEXT_MAX / 4, TEXT_HEAD = TEXT_MAX - TEXT_TAIL };

/* Made by embed.sh; each text ends with a 0 byte. */
extern const char html_style[], html_style_end[], html_script[], html_script_end[], html_policy[];

/* JSON in an HTML script element: '<' and '&' occur inside strings only, where an escape means the
 * same. */
static int put_json(const char *bytes, size_t n, void *context)
{
	FILE *out = context;

	for (size_t i = 0; i < n; i++) {
		if (bytes[i] == '<' || bytes[i] == '>' || bytes[i] == '&')
			fprintf(out, "\\u%04x", (unsigned int)bytes[i]);
		else
			fputc(bytes[i], out);
	}
	return ferror(out) ? -1 : 0;
}

/* "\u00e9" for two or three bytes of UTF-8, twice that for four. */
static size_t escaped_bytes(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0xf0)
			n += 12;
		else if (c >= 0xc0 || c < 0x20 || strchr("<>&", c))
			n += 6;
		else if (c < 0x80)
			n += c == '"' || c == '\\' ? 2 : 1;
	}
	return n;
}

size_t html_page_text_bytes(const char *text)
{
	size_t len = strlen(text), around = 3;

	if (len <= TEXT_MAX)
		return around + escaped_bytes(text, len);
	return around + escaped_bytes(text, TEXT_HEAD) + escaped_bytes(ELLIPSIS, strlen(ELLIPSIS)) +
	       escaped_bytes(text + len - TEXT_TAIL, TEXT_TAIL);
}

size_t html_page_bytes(json_t *value)
{
	size_t bytes = 3, i; /* brackets, and the comma behind them */
	const char *key;
	json_t *item;

	if (json_is_string(value))
		return html_page_text_bytes(json_string_value(value));
	if (!json_is_array(value) && !json_is_object(value))
		return json_dumpb(value, NULL, 0, JSON_ENCODE_ANY) + 1;
	json_array_foreach (value, i, item)
		bytes += html_page_bytes(item);
	json_object_foreach (value, key, item)
		bytes += html_page_text_bytes(key) + html_page_bytes(item);
	return bytes;
}

/* The begin and the end of a long text; never within a character. */
static void shorten(json_t *text)
{
	size_t len = json_string_length(text), from;
	const char *all = json_string_value(text);
	char *cut;

	if (len <= TEXT_MAX || !(cut = malloc(TEXT_MAX + sizeof(ELLIPSIS))))
		return;
	from = len - TEXT_TAIL;
	len = TEXT_HEAD;
	while (len && (all[len] & 0xc0) == 0x80)
		len--;
	while ((all[from] & 0xc0) == 0x80)
		from++;
	memcpy(cut, all, len);
	strcpy(cut + len, ELLIPSIS);
	strcat(cut, all + from);
	json_string_set_nocheck(text, cut);
	free(cut);
}

static void shorten_texts(json_t *value)
{
	const char *key;
	json_t *item;
	size_t i;

	json_array_foreach (value, i, item)
		shorten_texts(item);
	json_object_foreach (value, key, item)
		shorten_texts(item);
	if (json_is_string(value))
		shorten(value);
}

static json_t *data_of(const char *kind, const char *title, json_t *body, json_t *more)
{
	time_t now = time(NULL);
	struct tm tm;
	char made[32];
	json_t *data;

	gmtime_r(&now, &tm);
	strftime(made, sizeof(made), "%Y-%m-%d %H:%M:%S", &tm);
	data = json_pack("{s:s, s:s, s:s, s:s, s:O}", "kind", kind, "title", title, "made", made,
			 "version", UNDERSPAN_VERSION, "body", body);
	if (data && more && json_object_update(data, more)) {
		json_decref(data);
		return NULL;
	}
	return data;
}

int html_page_write(FILE *out, const char *kind, const char *title, json_t *body, json_t *more)
{
	char clean[512];
	json_t *data;
	int err;

	text_printable(clean, sizeof(clean), title);
	shorten_texts(body);
	data = data_of(kind, clean, body, more);
	if (!data)
		return -ENOMEM;
	fprintf(out,
		"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
		html_policy);
	text_print_markup(out, clean);
	fputs("</title>\n<style>", out);
	fwrite(html_style, 1, (size_t)(html_style_end - html_style), out);
	fputs("</style>\n</head>\n<body>\n<noscript>This report needs JavaScript; "
	      "the same figures: --json.</noscript>\n<script type=\"application/json\" "
	      "id=\"data\">",
	      out);
	err = json_dump_callback(data, put_json, out, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(data);
	fputs("</script>\n<script>", out);
	fwrite(html_script, 1, (size_t)(html_script_end - html_script), out);
	fputs("</script>\n</body>\n</html>\n", out);
	return err || fflush(out) || ferror(out) ? -EIO : 0;
}
