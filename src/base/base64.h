/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648). None of the program's libraries offers the encoding by a documented function.
 */
#ifndef UNDERSPAN_BASE_BASE64_H
#define UNDERSPAN_BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* Upper bound of the decoded length. */
static inline size_t base64_decoded_max(size_t len)
{
	return len / 4 * 3 + 3;
}

/*
 * Decodes the alphabets of section 4 and section 5 (URLs), with or without padding. Returns the
 * number of bytes; -1: other characters, or more than `size` bytes.
 */
long base64_decode(struct text in, uint8_t *out, size_t size);

/* Appends the encoded bytes, padded. 0 or -ENOMEM. */
int base64_append(struct buffer *b, struct text bytes);

#endif
