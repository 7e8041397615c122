// SPDX-License-Identifier: Apache-2.0
/*
 * The query of a view, cut up at its common table expressions. See view_text.h. Relies on the form
 * of sql/views/: each entry of the list starts with four spaces, its further lines are those with
 * more, or with a parenthesis. A test compares the answers with those of the views.
 */
#include "commands/explain/view_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/ask.h"

static const char step_mark[] = "    --explain-step\n";

/* ---- reading ---- */

static size_t line_length(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? (size_t)(end + 1 - line) : strlen(line);
}

static bool is_comment(const char *line)
{
	line += strspn(line, " ");
	return line[0] == '-' && line[1] == '-';
}

static bool begins_piece(const char *line)
{
	return !strncmp(line, "    ", 4) && line[4] != ' ' && line[4] != ')' && !is_comment(line) &&
	       strcspn(line, "\n") > 5;
}

/* Splits "NAME AS\n    (...)" and "NAME AS (SELECT ...)"; a different entry stays whole. */
static void name_piece(struct view_piece *piece, char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz_"), gap;

	piece->name = NULL;
	piece->body = text;
	if (!len || strncmp(text + len, " AS", 3) != 0)
		return;
	gap = strspn(text + len + 3, " \n");
	if (!gap || text[len + 3 + gap] != '(')
		return;
	text[len] = '\0';
	piece->name = text;
	piece->body = text + len + 3 + gap;
}

static void end_piece(char *text)
{
	size_t len = strlen(text);

	while (len && strchr(" \n,", text[len - 1]))
		text[--len] = '\0';
}

/* The text without comments, with the conditions for explain. */
static char *plain_text(const char *path)
{
	const char *text, *line;
	int len = explain_view_question(path, &text);
	AUTO_FREE char *whole = strndup(text, (size_t)len);
	char *plain = whole ? calloc(1, (size_t)len + 1) : NULL, *to = plain;

	if (!plain)
		return NULL;
	explain_enable_conditions(whole);
	for (line = whole; *line; line += line_length(line)) {
		if (is_comment(line) && strncmp(line, step_mark, strlen(step_mark)) != 0)
			continue;
		memcpy(to, line, line_length(line));
		to += line_length(line);
	}
	return plain;
}

static int cut_up(struct view_text *v)
{
	char *line = v->text + strlen("WITH\n"), *starts[VIEW_PIECES + 1];
	bool step = false;
	size_t length;

	for (; *line && strncmp(line, "SELECT", 6) != 0; line += length) {
		length = line_length(line);
		if (!strncmp(line, step_mark, strlen(step_mark))) {
			step = true;
			memset(line, ' ', length - 1);
		} else if (begins_piece(line)) {
			if (v->n == VIEW_PIECES)
				return -E2BIG;
			v->pieces[v->n] = (struct view_piece){ .step = step };
			starts[v->n++] = line;
			step = false;
		}
	}
	if (*line)
		line[-1] = '\0';
	v->final = line;
	v->settings = strstr(line, "\nSETTINGS ") ?: line + strlen(line);
	for (size_t i = 0; i < v->n; i++) {
		struct view_piece *piece = &v->pieces[i];

		if (i)
			starts[i][-1] = '\0';
		name_piece(piece, starts[i] + 4);
	}
	for (size_t i = 0; i < v->n; i++) {
		struct view_piece *piece = &v->pieces[i];

		end_piece(piece->body);
		piece->name = piece->name ? strdup(piece->name) : NULL;
		piece->body = strdup(piece->body);
		if (!piece->body)
			return -ENOMEM;
	}
	return 0;
}

int view_text_read(struct view_text *v, const char *path)
{
	*v = (struct view_text){ .text = plain_text(path) };
	return v->text ? cut_up(v) : -ENOMEM;
}

void view_text_free(struct view_text *v)
{
	for (size_t i = 0; i < v->n; i++) {
		free(v->pieces[i].name);
		free(v->pieces[i].body);
	}
	free(v->text);
	*v = (struct view_text){ 0 };
}

bool view_text_set_body(struct view_piece *piece, const char *format, ...)
{
	char *body = NULL;
	va_list arguments;
	int len;

	va_start(arguments, format);
	len = vasprintf(&body, format, arguments);
	va_end(arguments);
	if (len < 0)
		return false;
	free(piece->body);
	piece->body = body;
	return true;
}

/* ---- asking ---- */

/* Joins of few rows: no hash table for each thread. */
static const char few_rows[] = "join_algorithm = 'hash', max_threads = 1";

/* Whether the text reads rows of the name: after FROM, JOIN or IN, not a column of that name. */
static bool reads_of(const char *text, const char *name)
{
	static const char *const words[] = { "FROM ", "JOIN ", "IN " };
	size_t len = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at += len) {
		if (!strchr(" ,)\n", at[len]))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
			size_t before = strlen(words[i]);

			if ((size_t)(at - text) >= before &&
			    !strncmp(at - before, words[i], before))
				return true;
		}
	}
	return false;
}

/* Plans grow with the text: an unneeded piece is not free of charge. */
static void find_needed(const struct view_text *v, const char *final, bool needed[VIEW_PIECES])
{
	for (size_t i = v->n; i-- > 0;) {
		const struct view_piece *piece = &v->pieces[i];

		needed[i] = !piece->name || reads_of(final, piece->name);
		for (size_t j = i + 1; j < v->n && !needed[i]; j++)
			needed[i] = needed[j] && reads_of(v->pieces[j].body, piece->name);
	}
}

char *view_text_question(const struct view_text *v, const char *final)
{
	bool needed[VIEW_PIECES];
	const char *before = "WITH\n    ";
	char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	if (!out)
		return NULL;
	find_needed(v, final, needed);
	for (size_t i = 0; i < v->n; i++) {
		const struct view_piece *piece = &v->pieces[i];

		if (!needed[i])
			continue;
		fprintf(out, "%s%s%s%s", before, piece->name ?: "", piece->name ? " AS " : "",
			piece->body);
		before = ",\n    ";
	}
	/* in the question, as a user who may only read cannot set anything for the whole of it */
	fprintf(out, "\n%s%s %s", final, strstr(final, "\nSETTINGS ") ? "," : "\nSETTINGS",
		few_rows);
	if (!fclose(out))
		return sql;
	free(sql);
	return NULL;
}
