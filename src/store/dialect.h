/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ClickHouse speaks over HTTP, as tables and small functions: the status of an exception code,
 * the content type of a format, who a request says it is.
 */
#ifndef UNDERSPAN_STORE_DIALECT_H
#define UNDERSPAN_STORE_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "store/engine.h"

/* Exception codes that the store itself raises, with ClickHouse's numbers and names. */
enum exception {
	EXCEPTION_BAD_ARGUMENTS = 36,
	EXCEPTION_NOT_IMPLEMENTED = 48,
	EXCEPTION_SYNTAX_ERROR = 62,
	EXCEPTION_UNKNOWN_SETTING = 115,
	EXCEPTION_READONLY = 164,
	EXCEPTION_REQUIRED_PASSWORD = 194,
	EXCEPTION_TOO_MANY_SIMULTANEOUS_QUERIES = 202,
	EXCEPTION_QUERY_IS_TOO_LARGE = 229,
	EXCEPTION_MEMORY_LIMIT_EXCEEDED = 241,
	EXCEPTION_ZLIB_INFLATE_FAILED = 354,
	EXCEPTION_INTO_OUTFILE_NOT_ALLOWED = 358,
	EXCEPTION_ACCESS_DENIED = 497,
	EXCEPTION_SET_NON_GRANTED_ROLE = 512,
	EXCEPTION_AUTHENTICATION_FAILED = 516,
};

/* An exception on its way to the client. */
struct failure {
	int code; /* 0: none */
	char text[2048];
};

void set_failure(struct failure *failure, enum exception code, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

unsigned int exception_http_status(int code);

const char *format_content_type(struct text format);

/* Whether pieces of it, each formatted on its own, make the same document put together. */
bool format_can_stream(struct text format);

/* [A-Za-z0-9_]+ */
bool is_plain_name(struct text name);

/* "Basic dXNlcjpwYXNz" -> user, password. False if it is no such header or does not fit. */
bool parse_basic_auth(const char *header, char *ret_user, size_t user_size, char *ret_password,
		      size_t password_size);

/* The same time however much of it is right. */
bool same_secret(const char *a, const char *b);

/* Appends `text` quoted as a ClickHouse string literal ('...' or, with quote '`', a name). */
bool append_quoted(char **buf, size_t *len, size_t *size, struct text text, char quote);

#endif
