/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deflate (RFC 1951) and the checksum of gzip (RFC 1952): by Intel's ISA-L where the host has the
 * library, which needs a seventh of zlib's CPU time for rows, and by zlib elsewhere. Any thread.
 */
#ifndef UNDERSPAN_PIPELINE_DEFLATE_H
#define UNDERSPAN_PIPELINE_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/*
 * Appends the text to one stream of deflate blocks, after a flush at a byte's end: the next text's
 * blocks follow, unless this is the last one, which may be empty. 0, or -ENOMEM with bytes appended
 * that are no block.
 */
int deflate_text(const struct buffer *text, bool last, struct buffer *out);

/* `crc` of the bytes before, 0 at the begin. */
uint32_t deflate_crc32(uint32_t crc, const void *bytes, size_t n);

/* "ISA-L" or "zlib". */
const char *deflate_library(void);

extern bool deflate_zlib_only; /* for tests */

#endif
