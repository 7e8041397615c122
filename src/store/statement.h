/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an HTTP server has to know about a statement before the engine sees it: where an INSERT's
 * data begin, which format the answer has, and what is not for HTTP at all. A tokenizer and a few
 * keywords; whether the statement is valid stays the engine's judgement.
 */
#ifndef UNDERSPAN_STORE_STATEMENT_H
#define UNDERSPAN_STORE_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "store/engine.h"

enum statement_kind {
	STATEMENT_EMPTY,       /* nothing but space and comments */
	STATEMENT_SELECT,      /* SELECT, WITH, FROM or a parenthesis: may be streamed */
	STATEMENT_INSERT_DATA, /* INSERT INTO t [(...)] [FORMAT f | VALUES] data */
	STATEMENT_INSERT_SELECT,
	STATEMENT_OTHER,
};

struct statement {
	enum statement_kind kind;
	struct text
		sql; /* the statement; for INSERT_DATA only what stands before FORMAT or VALUES */
	struct text format; /* of the FORMAT clause; empty: none */
	struct text data;   /* INSERT_DATA: what follows in the same text */
	bool outfile; /* INTO OUTFILE, FROM INFILE: for the client program, not for a server */
	bool kills;   /* SYSTEM SHUTDOWN, SYSTEM KILL: the engine signals its whole process group */
	bool many;    /* more than one statement */
	bool inline_select_data; /* INSERT ... SELECT ... FORMAT f, and something after it */
};

void statement_parse(struct text query, struct statement *ret_statement);

#endif
