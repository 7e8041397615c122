// SPDX-License-Identifier: Apache-2.0
/* See base64.h. */
#include "base/base64.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
	const char *p;

	c = c == '-' ? '+' : c == '_' ? '/' : c;
	p = c ? strchr(alphabet, c) : NULL;
	return p ? (int)(p - alphabet) : -1;
}

long base64_decode(struct text in, uint8_t *out, size_t size)
{
	uint32_t bits = 0;
	unsigned int n_bits = 0;
	size_t n = 0;

	while (in.len && in.at[in.len - 1] == '=')
		in.len--;
	for (size_t i = 0; i < in.len; i++) {
		int value = value_of(in.at[i]);

		if (value < 0)
			return -1;
		bits = bits << 6 | (uint32_t)value;
		n_bits += 6;
		if (n_bits < 8)
			continue;
		n_bits -= 8;
		if (n == size)
			return -1;
		out[n++] = (uint8_t)(bits >> n_bits);
	}
	return (long)n;
}

int base64_append(struct buffer *b, struct text bytes)
{
	const unsigned char *s = (const unsigned char *)bytes.at;
	int err = 0;

	for (size_t i = 0; !err && i < bytes.len; i += 3) {
		size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
			     (n > 2 ? s[i + 2] : 0);
		char out[4] = { alphabet[v >> 18], alphabet[v >> 12 & 63],
				n > 1 ? alphabet[v >> 6 & 63] : '=',
				n > 2 ? alphabet[v & 63] : '=' };

		err = buffer_append(b, out, sizeof(out));
	}
	return err;
}
