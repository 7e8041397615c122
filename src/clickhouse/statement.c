// SPDX-License-Identifier: Apache-2.0
/* A tokenizer for ClickHouse's SQL, just deep enough to find clauses. See statement.h. */
#include "clickhouse/statement.h"

#include <string.h>
#include <strings.h>

#include "base/util.h"

enum token_type { TOKEN_END, TOKEN_WORD, TOKEN_SEMICOLON, TOKEN_OPEN, TOKEN_CLOSE, TOKEN_OTHER };

struct token {
	enum token_type type;
	const char *at;
	size_t len;
};

struct scanner {
	const char *at;
	const char *end;
};

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_word(char c)
{
	return is_word_start(c) || (c >= '0' && c <= '9') || c == '$';
}

static bool starts(const struct scanner *s, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(s->end - s->at) >= n && !memcmp(s->at, with, n);
}

static void skip_line(struct scanner *s)
{
	const char *newline = memchr(s->at, '\n', (size_t)(s->end - s->at));

	s->at = newline ? newline + 1 : s->end;
}

static void skip_space_and_comments(struct scanner *s)
{
	while (s->at < s->end) {
		if (is_space(*s->at)) {
			s->at++;
		} else if (starts(s, "--") || starts(s, "#!") || starts(s, "# ")) {
			skip_line(s);
		} else if (starts(s, "/*")) {
			unsigned depth = 0;

			/* they nest */
			do {
				if (starts(s, "/*")) {
					depth++;
					s->at += 2;
				} else if (starts(s, "*/")) {
					depth--;
					s->at += 2;
				} else {
					s->at++;
				}
			} while (depth && s->at < s->end);
		} else {
			break;
		}
	}
}

/* 'text', "name", `name`: backslash escapes; a doubled quote is a literal quote */
static void skip_quoted(struct scanner *s)
{
	char quote = *s->at++;

	while (s->at < s->end) {
		if (*s->at == '\\' && s->at + 1 < s->end) {
			s->at += 2;
		} else if (*s->at == quote) {
			s->at++;
			if (s->at == s->end || *s->at != quote)
				return;
			s->at++;
		} else {
			s->at++;
		}
	}
}

/* $tag$ ... $tag$ */
static bool skip_heredoc(struct scanner *s)
{
	const char *tag_end = s->at + 1;
	const char *close;
	size_t n;

	while (tag_end < s->end && is_word(*tag_end) && *tag_end != '$')
		tag_end++;
	if (tag_end == s->end || *tag_end != '$')
		return false;
	n = (size_t)(tag_end + 1 - s->at);
	close = memmem(tag_end + 1, (size_t)(s->end - tag_end - 1), s->at, n);
	if (!close)
		return false;
	s->at = close + n;
	return true;
}

static struct token next(struct scanner *s)
{
	struct token t = { TOKEN_OTHER, NULL, 0 };

	skip_space_and_comments(s);
	t.at = s->at;
	if (s->at == s->end) {
		t.type = TOKEN_END;
	} else if (is_word_start(*s->at)) {
		t.type = TOKEN_WORD;
		while (s->at < s->end && is_word(*s->at))
			s->at++;
	} else if (*s->at >= '0' && *s->at <= '9') {
		/* 1e5, 0xff, 10.5: one token, so that letters in numbers are not taken for words */
		while (s->at < s->end && (is_word(*s->at) || *s->at == '.'))
			s->at++;
	} else if (*s->at == '\'' || *s->at == '"' || *s->at == '`') {
		skip_quoted(s);
	} else if (*s->at != '$' || !skip_heredoc(s)) {
		t.type = *s->at == ';'	 ? TOKEN_SEMICOLON
			 : *s->at == '(' ? TOKEN_OPEN
			 : *s->at == ')' ? TOKEN_CLOSE
					 : TOKEN_OTHER;
		s->at++;
	}
	t.len = (size_t)(s->at - t.at);
	return t;
}

static bool is_keyword(const struct token *t, const char *keyword)
{
	return t->type == TOKEN_WORD && t->len == strlen(keyword) &&
	       !strncasecmp(t->at, keyword, t->len);
}

/* As in the engine's parser: blanks and the first line break after FORMAT are not data. */
static struct text data_after(const struct scanner *s)
{
	const char *at = s->at;

	while (at < s->end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\f'))
		at++;
	if (at < s->end && *at == '\n')
		at++;
	return (struct text){ at, (size_t)(s->end - at) };
}

static bool only_space_left(struct scanner s)
{
	struct token t = next(&s);

	while (t.type == TOKEN_SEMICOLON)
		t = next(&s);
	return t.type == TOKEN_END;
}

/* SETTINGS name = ..., and not a table of that name */
static bool is_settings_clause(const struct token *t, struct scanner after)
{
	struct token name = next(&after), equals = next(&after);

	return is_keyword(t, "SETTINGS") && name.type == TOKEN_WORD && equals.len == 1 &&
	       *equals.at == '=';
}

/* After INSERT: finds VALUES, FORMAT or SELECT on the top level. */
static void find_data(struct scanner *s, struct statement *ret)
{
	size_t depth = 0, n = 0;
	struct token t, previous = { 0 };

	/* no FORMAT: Values; all data are in the body */
	ret->kind = STATEMENT_INSERT_DATA;
	for (t = next(s); t.type != TOKEN_END; previous = t, t = next(s), n++) {
		bool clause = depth == 0 && n > 1 && ret->kind == STATEMENT_INSERT_DATA;

		if (t.type == TOKEN_OPEN)
			depth++;
		else if (t.type == TOKEN_CLOSE && depth)
			depth--;
		if (is_keyword(&previous, "FROM") && is_keyword(&t, "INFILE"))
			ret->outfile = true;
		if (clause && !ret->settings.at && is_settings_clause(&t, *s))
			ret->settings.at = t.at;
		if (clause && is_keyword(&t, "VALUES")) {
			ret->sql.len = (size_t)(t.at - ret->sql.at);
			ret->format = (struct text){ "Values", 6 };
			ret->data = (struct text){ s->at, (size_t)(s->end - s->at) };
			return;
		}
		if (depth == 0 && n > 1 && is_keyword(&t, "FORMAT")) {
			struct scanner after = *s;
			struct token name = next(&after);

			if (name.type != TOKEN_WORD)
				continue;
			*s = after;
			ret->format = (struct text){ name.at, name.len };
			if (ret->kind == STATEMENT_INSERT_SELECT) {
				ret->inline_select_data = !only_space_left(*s);
				return;
			}
			ret->sql.len = (size_t)(t.at - ret->sql.at);
			ret->data = data_after(s);
			return;
		}
		/* INSERT INTO t (a, b) SELECT ..., also in parentheses */
		if (n > 1 && ret->kind == STATEMENT_INSERT_DATA &&
		    (is_keyword(&t, "SELECT") || (depth == 0 && is_keyword(&t, "WITH"))))
			ret->kind = STATEMENT_INSERT_SELECT;
		if (t.type == TOKEN_SEMICOLON && depth == 0) {
			ret->many = !only_space_left(*s);
			if (ret->kind == STATEMENT_INSERT_DATA)
				ret->sql.len = (size_t)(t.at - ret->sql.at);
			return;
		}
	}
}

static void parse_insert(struct scanner *s, struct statement *ret)
{
	find_data(s, ret);
	if (ret->kind != STATEMENT_INSERT_DATA)
		ret->settings.at = NULL;
	if (ret->settings.at)
		ret->settings.len = (size_t)(ret->sql.at + ret->sql.len - ret->settings.at);
}

static void parse_other(struct scanner *s, struct token previous, struct statement *ret)
{
	size_t depth = 0;

	for (struct token t = next(s); t.type != TOKEN_END; previous = t, t = next(s)) {
		if (t.type == TOKEN_OPEN)
			depth++;
		else if (t.type == TOKEN_CLOSE && depth)
			depth--;
		if (is_keyword(&previous, "INTO") && is_keyword(&t, "OUTFILE"))
			ret->outfile = true;
		if (is_keyword(&previous, "SYSTEM") &&
		    (is_keyword(&t, "SHUTDOWN") || is_keyword(&t, "KILL")))
			ret->kills = true;
		/* WITH ... INSERT INTO; insert(...) would be a function */
		if (is_keyword(&previous, "INSERT") && t.type != TOKEN_OPEN)
			ret->reads = false;
		/* the last FORMAT counts: a column may be called format */
		if (depth == 0 && is_keyword(&previous, "FORMAT") && t.type == TOKEN_WORD)
			ret->format = (struct text){ t.at, t.len };
		if (t.type == TOKEN_SEMICOLON) {
			ret->many = !only_space_left(*s);
			if (ret->many)
				return;
			/* the engine's streaming parser rejects a trailing semicolon */
			ret->sql.len = (size_t)(t.at - ret->sql.at);
			return;
		}
	}
}

/* The engine's readonly setting allows some writes: INSERT INTO FUNCTION file(...), SYSTEM STOP. */
static bool is_reading_word(const struct token *t)
{
	static const char *const words[] = { "SELECT",	 "WITH",    "FROM",   "SHOW",	"DESC",
					     "DESCRIBE", "EXPLAIN", "EXISTS", "VALUES", "CHECK" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (is_keyword(t, words[i]))
			return true;
	}
	return t->type == TOKEN_OPEN; /* (SELECT 1) UNION ALL ... */
}

void statement_parse(struct text query, struct statement *ret_statement)
{
	struct scanner s = { query.at, query.at + query.len };
	struct statement ret = { .kind = STATEMENT_OTHER, .sql = query };
	struct token first = next(&s);

	while (first.type == TOKEN_SEMICOLON)
		first = next(&s);
	ret.sql.at = first.at;
	ret.sql.len = (size_t)(s.end - first.at);
	if (first.type == TOKEN_END) {
		ret.kind = STATEMENT_EMPTY;
	} else if (is_keyword(&first, "INSERT")) {
		parse_insert(&s, &ret);
	} else {
		if (is_keyword(&first, "SELECT") || is_keyword(&first, "WITH") ||
		    is_keyword(&first, "FROM") || first.type == TOKEN_OPEN)
			ret.kind = STATEMENT_SELECT;
		ret.reads = is_reading_word(&first);
		parse_other(&s, first, &ret);
	}
	*ret_statement = ret;
}
