/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's body as it arrives: unpacked at once, and bounded, both by itself and by what all
 * bodies together may hold, so that neither a long stream nor a short bomb fills the memory.
 */
#ifndef UNDERSPAN_STORE_BODY_H
#define UNDERSPAN_STORE_BODY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "util.h"

/* What all bodies of a server share. */
struct body_budget {
	size_t max_body;  /* one body, unpacked */
	size_t max_total; /* all bodies that are held at a time */
	atomic_size_t held;
};

enum body_encoding { BODY_PLAIN, BODY_GZIP, BODY_UNKNOWN };

/* "gzip", "x-gzip", "deflate", "identity", NULL */
enum body_encoding body_encoding_parse(const char *content_encoding);

struct body {
	char *bytes;
	size_t len;
	struct body_budget *budget; /* the rest is private */
	size_t size;
	bool packed, ended;
	z_stream zlib;
};

int body_begin(struct body *body, struct body_budget *budget, enum body_encoding encoding);

/* 0, -EFBIG (too large), -ENOBUFS (all bodies together), -ENOMEM, -EBADMSG (not what it claims) */
int body_append(struct body *body, const char *bytes, size_t n);

/* -EBADMSG when the packed stream is cut short. */
int body_finish(struct body *body);

void body_free(struct body *body);

#endif
