/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of a statement needed before the engine runs: start of an INSERT's data, output
 * format, statements not allowed over HTTP. A tokenizer and a few keywords; the engine checks
 * validity.
 */
#ifndef UNDERSPAN_CLICKHOUSE_STATEMENT_H
#define UNDERSPAN_CLICKHOUSE_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

enum statement_kind {
	STATEMENT_EMPTY,       /* only space and comments */
	STATEMENT_SELECT,      /* SELECT, WITH, FROM or a parenthesis: may be streamed */
	STATEMENT_INSERT_DATA, /* INSERT INTO t [(...)] [FORMAT f | VALUES] data */
	STATEMENT_INSERT_SELECT,
	STATEMENT_OTHER,
};

struct statement {
	enum statement_kind kind;
	struct text sql;    /* the statement; INSERT_DATA: only the part before FORMAT or VALUES */
	struct text format; /* of the FORMAT clause; empty: none */
	struct text data;   /* INSERT_DATA: data in the same text */
	struct text settings; /* INSERT_DATA: the end of sql from the word SETTINGS on; or empty */
	bool outfile; /* INTO OUTFILE, FROM INFILE: for the client program, not for a server */
	bool kills;   /* SYSTEM SHUTDOWN, SYSTEM KILL: the engine signals its whole process group */
	bool reads;   /* read-only by its keywords: required for GET and readonly */
	bool many;    /* more than one statement */
	bool inline_select_data; /* INSERT ... SELECT ... FORMAT f, followed by data */
};

void statement_parse(struct text query, struct statement *ret_statement);

#endif
