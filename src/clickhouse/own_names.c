// SPDX-License-Identifier: Apache-2.0
/* Names of sql/ found in a statement. See own_names.h. */
#include "clickhouse/own_names.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "clickhouse/sql_files.h"
#include "clickhouse/statement.h"

enum { PREFIX_MAX = 64 };

/* A word of many other uses: the view only where a table is named. */
static const char ambiguous[] = "request";

struct pen {
	struct buffer out;
	const char *prefix;
	int err;
	bool wants_table; /* behind FROM, JOIN, ... */
};

int own_names_check(const char *prefix, struct why *why)
{
	size_t n;

	if (!prefix)
		return 0;
	n = strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (n && n <= PREFIX_MAX && !prefix[n] && !isdigit((unsigned char)*prefix))
		return 0;
	return why_fail(why, EINVAL,
			"table_prefix: '%.100s' is no prefix: letters, digits and underscores, at "
			"most %d, no digit first, such as prod_",
			prefix, PREFIX_MAX);
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool is(struct text t, const char *s)
{
	return t.len == strlen(s) && !memcmp(t.at, s, t.len);
}

bool own_names_has(struct text name)
{
	static const char *const folders[] = { "tables/", "views/", "schema/" };
	static const char local[] = "_local";
	const size_t n = sizeof(local) - 1;

	if (name.len > n && !memcmp(name.at + name.len - n, local, n))
		name.len -= n;
	for (const struct sql_file *f = sql_files; name.len && f->path; f++) {
		const char *base = strchr(f->path, '/');

		for (size_t i = 0; base && i < ARRAY_SIZE(folders); i++) {
			if (!strncmp(f->path, folders[i], strlen(folders[i])) &&
			    strlen(base + 1) == name.len + strlen(".sql") &&
			    !memcmp(base + 1, name.at, name.len) &&
			    !strcmp(base + 1 + name.len, ".sql"))
				return true;
		}
	}
	return false;
}

static void put(struct pen *pen, const char *at, size_t len)
{
	pen->err = pen->err ?: buffer_append(&pen->out, at, len);
}

static void put_prefix(struct pen *pen)
{
	put(pen, pen->prefix, strlen(pen->prefix));
}

/* What stands before a table. */
static bool names_table(struct text word)
{
	static const char *const words[] = { "FROM",  "JOIN",	  "EXISTS", "VIEW",
					     "TABLE", "DESCRIBE", "DESC",   "INTO" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (word.len == strlen(words[i]) && !strncasecmp(word.at, words[i], word.len))
			return true;
	}
	return false;
}

static const char *put_word(struct pen *pen, const char *p, const char *end)
{
	struct text word = { p, 0 };

	while (p + word.len < end && is_word(p[word.len]))
		word.len++;
	if (own_names_has(word) && (!is(word, ambiguous) || pen->wants_table))
		put_prefix(pen);
	put(pen, word.at, word.len);
	pen->wants_table = names_table(word);
	return p + word.len;
}

/* The end of the quoted text; `end` if it does not end. */
static const char *skip_quoted(const char *p, const char *end)
{
	char quote = *p++;

	while (p < end && *p != quote)
		p += 1 + (*p == '\\' && p + 1 < end);
	return p < end ? p + 1 : end;
}

/* A name, a string that is a name or the begin of all names, or a path in Keeper. */
static const char *put_quoted(struct pen *pen, const char *p, const char *end)
{
	const char *after = skip_quoted(p, end), *slash;
	bool is_string = *p == '\'';
	struct text inner = { p + 1, after - p >= 2 ? (size_t)(after - p - 2) : 0 };

	slash = is_string ? memrchr(inner.at, '/', inner.len) : NULL;
	put(pen, p, 1);
	if (slash) {
		put(pen, inner.at, (size_t)(slash + 1 - inner.at));
		inner.len -= (size_t)(slash + 1 - inner.at);
		inner.at = slash + 1;
	}
	if (is(inner, ambiguous) ? !is_string && pen->wants_table
				 : own_names_has(inner) || (is_string && is(inner, "ebpf_")))
		put_prefix(pen);
	put(pen, inner.at, (size_t)(after - inner.at));
	pen->wants_table = false;
	return after;
}

static const char *skip_comment(const char *p, const char *end)
{
	const char *found = p[0] == '-' ? memchr(p, '\n', (size_t)(end - p))
					: memmem(p + 2, (size_t)(end - p - 2), "*/", 2);

	return found ? found + (p[0] == '-' ? 1 : 2) : end;
}

static const char *put_next(struct pen *pen, const char *p, const char *end)
{
	const char *after = p + 1;

	if (is_word(*p))
		return put_word(pen, p, end);
	if (*p == '\'' || *p == '`' || *p == '"')
		return put_quoted(pen, p, end);
	if (end - p >= 2 && (!memcmp(p, "--", 2) || !memcmp(p, "/*", 2)))
		after = skip_comment(p, end);
	else if (!isspace((unsigned char)*p))
		pen->wants_table = false;
	put(pen, p, (size_t)(after - p));
	return after;
}

/* The written text, with `rest` and the NUL behind it. */
static char *finish(struct pen *pen, struct text rest)
{
	put(pen, rest.at, rest.len + 1);
	if (!pen->err)
		return pen->out.data;
	buffer_free(&pen->out);
	return NULL;
}

char *own_names_put(const char *sql, const char *prefix)
{
	size_t len = strlen(sql);
	const char *p = sql, *end = sql + len;
	struct pen pen = { .prefix = prefix };
	struct statement statement;

	if (!prefix)
		return strdup(sql);
	statement_parse((struct text){ sql, len }, &statement);
	if (statement.data.len)
		end = statement.data.at;
	while (p < end)
		p = put_next(&pen, p, end);
	return finish(&pen, (struct text){ end, (size_t)(sql + len - end) });
}

char *own_names_put_sentence(const char *sentence, const char *prefix)
{
	const char *p = sentence, *end = sentence + strlen(sentence);
	struct pen pen = { .prefix = prefix, .wants_table = true };

	if (!prefix)
		return strdup(sentence);
	while (p < end) {
		if (is_word(*p))
			p = put_word(&pen, p, end);
		else
			put(&pen, p++, 1);
	}
	return finish(&pen, (struct text){ end, 0 });
}

char *own_names_put_value(const char *value, const char *prefix)
{
	bool own = prefix && !strncmp(value, "ebpf_", strlen("ebpf_")) &&
		   own_names_has((struct text){ value, strlen(value) });
	char *out;

	return asprintf(&out, "%s%s", own ? prefix : "", value) < 0 ? NULL : out;
}

const char *own_names_take(const char *name, const char *prefix)
{
	size_t n = prefix ? strlen(prefix) : 0;
	const struct text whole = { name, strlen(name) };

	if (!prefix)
		return name;
	if (!strncmp(name, prefix, n) && own_names_has((struct text){ name + n, whole.len - n }))
		return name + n;
	return own_names_has(whole) ? NULL : name;
}
