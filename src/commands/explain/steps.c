// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of request_time_parts, asked step by step. See steps.h. Rows go from answer to question as
 * text of the server, byte by byte: names may hold anything.
 */
#include "commands/explain/steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/explain/ask.h"
#include "commands/explain/view_text.h"
#include "base/util.h"

/* A larger piece stays a subquery: a server reads questions of 256 KiB (max_query_size). */
enum { LITERAL_MAX = 48 * 1024, COLUMNS_MAX = 128 };

/* ---- rows as literals ---- */

/* Cuts a line at its tabs; returns the number of fields. */
static size_t split(char *line, char *ret_fields[COLUMNS_MAX])
{
	size_t n = 0;
	char *field;

	while (n < COLUMNS_MAX && (field = strsep(&line, "\t")))
		ret_fields[n++] = field;
	return n;
}

static bool is_one_of(const char *type, const char *const *prefixes)
{
	for (; *prefixes; prefixes++) {
		if (!strncmp(type, *prefixes, strlen(*prefixes)))
			return true;
	}
	return false;
}

/* Fields of TabSeparated have the escapes of a literal. Numbers are no strings: ClickHouse reads
 * the last digit of a fraction exactly only in literals. */
static void put_value(FILE *out, const char *type, const char *field)
{
	static const char *const bare[] = { "Int",	     "UInt",
					    "Float",	     "Nullable(Int",
					    "Nullable(UInt", "Nullable(Float",
					    "Array(",	     NULL };

	if (!strcmp(field, "\\N"))
		fputs("NULL", out);
	else
		fprintf(out, is_one_of(type, bare) ? "%s" : "'%s'", field);
}

/* Without LowCardinality(), which functions of constants do not return for every type; the
 * answer's escaped quotes are those of a name of a type. */
static void put_type(FILE *out, const char *type)
{
	static const char low[] = "LowCardinality(";
	bool is_low = !strncmp(type, low, strlen(low));
	size_t from = is_low ? strlen(low) : 0, to = strlen(type) - is_low;

	for (size_t i = from; i < to; i++) {
		if (type[i] == '\\' && i + 1 < to)
			i++;
		fputc(type[i], out);
	}
}

struct rows {
	char *names[COLUMNS_MAX], *types[COLUMNS_MAX], **fields;
	size_t columns, n;
};

/* Of an answer in TabSeparatedWithNamesAndTypes, which is cut up. */
static int read_rows(char *text, struct rows *r, struct why *why)
{
	char *names = strsep(&text, "\n"), *types = text ? strsep(&text, "\n") : NULL, *line;
	char **longer;

	*r = (struct rows){ 0 };
	if (!types || !text)
		return why_fail(why, EBADMSG, "ClickHouse's answer has no types");
	r->columns = split(names, r->names);
	if (split(types, r->types) != r->columns || r->columns == COLUMNS_MAX)
		return why_fail(why, EBADMSG, "ClickHouse's answer has other types than columns");
	while ((line = strsep(&text, "\n")) && *line) {
		longer = realloc(r->fields, (r->n + 1) * COLUMNS_MAX * sizeof(*r->fields));
		if (!longer)
			return why_fail(why, ENOMEM, "out of memory");
		r->fields = longer;
		if (split(line, &r->fields[r->n++ * COLUMNS_MAX]) != r->columns)
			return why_fail(why, EBADMSG, "a row of ClickHouse's answer is incomplete");
	}
	return 0;
}

/* "SELECT a, b FROM (SELECT 1) ARRAY JOIN CAST([1, 2] AS Array(UInt8)) AS a, ..." Heap. */
static char *literal_of(const struct rows *r)
{
	char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i < r->columns; i++)
		fprintf(out, "%s%s", i ? ", " : "SELECT ", r->names[i]);
	for (size_t i = 0; i < r->columns; i++) {
		fputs(i ? ", CAST([" : " FROM (SELECT 1) ARRAY JOIN CAST([", out);
		for (size_t row = 0; row < r->n; row++) {
			fputs(row ? "," : "", out);
			put_value(out, r->types[i], r->fields[row * COLUMNS_MAX + i]);
		}
		fputs("] AS Array(", out);
		put_type(out, r->types[i]);
		fprintf(out, ")) AS %s", r->names[i]);
	}
	if (!fclose(out))
		return sql;
	free(sql);
	return NULL;
}

/* ---- steps ---- */

/* A question within another one: the settings are then those of a subquery, and need no right to
 * change settings. Heap; NULL: out of memory. */
static char *all_of(const char *question, const char *which)
{
	char *sql = NULL;

	if (!question || asprintf(&sql, "SELECT * FROM (%s\n)%s", question, which) < 0)
		return NULL;
	return sql;
}

/* The rows of a question as SELECT of literals; NULL: these would be long. Heap. */
static int literal_question(struct clickhouse_client *client, const char *question,
			    const struct clickhouse_param *params, char **ret_sql, struct why *why)
{
	AUTO_FREE char *text = NULL;
	struct rows rows = { 0 };
	size_t len;
	int err = explain_ask_raw(client, question, "TabSeparatedWithNamesAndTypes", params, &text,
				  &len, why);

	if (err)
		return err;
	*ret_sql = NULL;
	if (len > LITERAL_MAX)
		return 0;
	err = read_rows(text, &rows, why);
	if (!err && !(*ret_sql = literal_of(&rows)))
		err = why_fail(why, ENOMEM, "out of memory");
	free(rows.fields);
	return err;
}

static char *piece_question(const struct view_text *v, const struct view_piece *piece)
{
	AUTO_FREE char *final = NULL;
	AUTO_FREE char *question = NULL;

	if (asprintf(&final, "SELECT * FROM %s%s", piece->name, v->settings) < 0)
		final = NULL;
	question = final ? view_text_question(v, final) : NULL;
	return all_of(question, "");
}

/* Replaces the marked pieces of the view by their rows, in their order. */
static int take_steps(struct clickhouse_client *client, struct view_text *v,
		      const struct clickhouse_param *params, struct why *why)
{
	int err = 0;

	for (size_t i = 0; i < v->n && !err; i++) {
		struct view_piece *piece = &v->pieces[i];
		AUTO_FREE char *question = piece->step ? piece_question(v, piece) : NULL;
		AUTO_FREE char *rows = NULL;

		if (!piece->step)
			continue;
		if (!question)
			return why_fail(why, ENOMEM, "out of memory");
		err = literal_question(client, question, params, &rows, why);
		if (!err && rows && !view_text_set_body(piece, "(%s)", rows))
			err = why_fail(why, ENOMEM, "out of memory");
	}
	return err;
}

/* A view's question with steps taken, for the rows of the trace. Heap. */
static int question_of(struct clickhouse_client *client, struct view_text *v,
		       const struct clickhouse_param *params, const char *order, char **ret_sql,
		       struct why *why)
{
	AUTO_FREE char *question = NULL;
	AUTO_FREE char *which = NULL;
	int err = take_steps(client, v, params, why);

	if (err)
		return err;
	if (asprintf(&which, " WHERE trace_id = {trace_id:String}%s", order) < 0)
		which = NULL;
	question = view_text_question(v, v->final);
	*ret_sql = which ? all_of(question, which) : NULL;
	return *ret_sql ? 0 : why_fail(why, ENOMEM, "out of memory");
}

/* The rows of request_time for the trace, as a SELECT of literals if these are few. Heap. */
static int ask_request_time(struct clickhouse_client *client, const struct clickhouse_param *params,
			    char **ret_sql, struct why *why)
{
	struct view_text v;
	AUTO_FREE char *question = NULL;
	int err = view_text_read(&v, "views/request_time.sql");

	err = err ? why_fail(why, -err, "out of memory")
		  : question_of(client, &v, params, "", &question, why);
	if (!err)
		err = literal_question(client, question, params, ret_sql, why);
	if (!err && !*ret_sql) {
		*ret_sql = question;
		question = NULL;
	}
	view_text_free(&v);
	return err;
}

/* Puts the rows of request_time where the view asks for them. */
static bool give_request_time(struct view_text *v, const char *rows)
{
	static const char call[] = "request_time(from = {from:DateTime64(6, 'UTC')}, "
				   "to = {to:DateTime64(6, 'UTC')})";

	for (size_t i = 0; i < v->n; i++) {
		AUTO_FREE char *body = strdup(v->pieces[i].body);
		char *at = body ? strstr(body, call) : NULL;

		if (at)
			return view_text_set_body(&v->pieces[i], "%.*s(%s)%s", (int)(at - body),
						  body, rows, at + strlen(call));
	}
	return false;
}

int explain_ask_parts(struct clickhouse_client *client, const struct clickhouse_param *params,
		      json_t **ret_rows, struct why *why)
{
	struct view_text v;
	AUTO_FREE char *times = NULL;
	AUTO_FREE char *question = NULL;
	int err = ask_request_time(client, params, &times, why);

	if (err)
		return err;
	err = view_text_read(&v, "views/request_time_parts.sql");
	if (err || !give_request_time(&v, times))
		err = why_fail(why, ENOMEM, "out of memory");
	if (!err)
		err = question_of(client, &v, params, " ORDER BY start_us, span_id", &question,
				  why);
	if (!err)
		err = explain_ask_text(client, question, params, ret_rows, why);
	view_text_free(&v);
	return err;
}
