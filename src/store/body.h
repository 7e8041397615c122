/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a request while it arrives. It is decompressed at once. Two limits hold: bytes of a
 * single body and bytes of all bodies together, so that neither a long stream nor a small
 * decompression bomb fills the memory.
 */
#ifndef UNDERSPAN_STORE_BODY_H
#define UNDERSPAN_STORE_BODY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "base/util.h"

/* Limits and use shared by all bodies of a server. */
struct body_budget {
	size_t max_body;  /* one body, decompressed */
	size_t max_total; /* all bodies in memory */
	atomic_size_t held;
};

enum body_encoding { BODY_PLAIN, BODY_GZIP, BODY_UNKNOWN };

/* "gzip", "x-gzip", "deflate", "identity", NULL */
enum body_encoding body_encoding_parse(const char *content_encoding);

struct body {
	char *bytes;
	size_t len;
	struct body_budget *budget; /* private from here on */
	size_t size;
	bool packed, ended;
	z_stream zlib;
};

int body_begin(struct body *body, struct body_budget *budget, enum body_encoding encoding);

/* 0, -EFBIG (body too large), -ENOBUFS (all bodies together too large), -ENOMEM, -EBADMSG (wrong
 * encoding) */
int body_append(struct body *body, const char *bytes, size_t n);

/* -EBADMSG: the compressed stream is truncated. */
int body_finish(struct body *body);

void body_free(struct body *body);

#endif
