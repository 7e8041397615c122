/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClickHouse's HTTP conventions as tables and small functions: status of an exception code, content
 * type of a format, credentials of a request.
 */
#ifndef UNDERSPAN_STORE_DIALECT_H
#define UNDERSPAN_STORE_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "clickhouse/exceptions.h"
#include "store/engine.h"

/* An exception to report to the client. */
struct failure {
	int code; /* 0: none */
	char text[2048];
};

void set_failure(struct failure *failure, enum exception code, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

const char *format_content_type(struct text format);

/* Whether blocks formatted separately concatenate to a valid document. */
bool format_can_stream(struct text format);

/* [A-Za-z0-9_]+ */
bool is_plain_name(struct text name);

/* "Basic dXNlcjpwYXNz" -> user, password. False: other header, or too long. */
bool parse_basic_auth(const char *header, char *ret_user, size_t user_size, char *ret_password,
		      size_t password_size);

/* Constant-time comparison. */
bool same_secret(const char *a, const char *b);

/* Appends `text` quoted as a ClickHouse string literal ('...' or, with quote '`', a name). */
bool append_quoted(char **buf, size_t *len, size_t *size, struct text text, char quote);

#endif
