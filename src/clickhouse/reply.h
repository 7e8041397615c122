/* SPDX-License-Identifier: Apache-2.0 */
/* A response of ClickHouse. */
#ifndef UNDERSPAN_CLICKHOUSE_REPLY_H
#define UNDERSPAN_CLICKHOUSE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The response; filled on every return. */
struct clickhouse_reply {
	long http_status;   /* 0: no answer */
	int exception_code; /* "Code: N" of ClickHouse; 0: none */
	uint64_t read_rows, read_bytes, written_rows, written_bytes;
	uint64_t retry_after_ns; /* a proxy's Retry-After, 0: none */
	bool from_clickhouse;	 /* has a header that only ClickHouse sends */
	bool from_own_store;	 /* from the embedded store: INSERTs are serialized */
	unsigned int requests;	 /* requests sent; the response belongs to the last */
	char message[1024];	 /* message of ClickHouse or libcurl; "": success */
};

/* Receives chunks of a body. */
typedef int (*clickhouse_on_bytes)(const char *bytes, size_t n, void *context); /* 0 or -errno */

/* "Code: 60. DB::Exception: ..." -> 60; 0: other text. */
int clickhouse_exception_code(const char *body, size_t len);

#endif
