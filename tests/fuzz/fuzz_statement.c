// SPDX-License-Identifier: Apache-2.0
/* The store's parser of statements, and the printing of answers by `sql`. */
#include "fuzz.h"

#include <stdio.h>

#include "store/dialect.h"
#include "clickhouse/statement.h"
#include "base/text.h"

static void read_statement(const char *bytes, size_t len)
{
	struct statement s;

	statement_parse((struct text){ bytes, len }, &s);
	/* results point into the input; writes are never classified as reads */
	MUST(s.sql.at >= bytes && s.sql.at + s.sql.len <= bytes + len);
	/* VALUES is the format Values, a literal */
	MUST(s.format.len <= len);
	MUST(!s.data.len || s.data.at + s.data.len <= bytes + len);
	MUST(!s.reads || (s.kind != STATEMENT_INSERT_DATA && s.kind != STATEMENT_INSERT_SELECT &&
			  s.kind != STATEMENT_EMPTY));
}

static void read_header(const char *bytes, size_t len)
{
	char *text = strndup(bytes, len), user[64], password[64];

	MUST(text);
	if (parse_basic_auth(text, user, sizeof(user), password, sizeof(password)))
		MUST(strlen(user) < sizeof(user) && strlen(password) < sizeof(password));
	free(text);
}

/* In two chunks: no additional bytes, no terminal controls. */
static void print(const char *bytes, size_t len)
{
	struct terminal_text t = { { 0 } };
	size_t n = 0, half = len / 2;
	char *got = NULL;
	FILE *out = open_memstream(&got, &n);

	MUST(out);
	MUST(terminal_text_print(&t, bytes, half, out) == 0);
	MUST(terminal_text_print(&t, bytes + half, len - half, out) == 0);
	fclose(out);
	MUST(n <= len);
	for (size_t i = 0; i < n; i++)
		MUST((unsigned char)got[i] >= ' ' || got[i] == '\n' || got[i] == '\t');
	free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* an exact-size copy: sanitizers detect reads beyond the end */
	char *bytes = malloc(size ?: 1);

	MUST(bytes);
	memcpy(bytes, data, size);
	read_statement(bytes, size);
	read_header(bytes, size);
	print(bytes, size);
	free(bytes);
	return 0;
}
