// SPDX-License-Identifier: Apache-2.0
/* The endpoint of a path. See endpoint.h. */
#include "commands/requests/endpoint.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LONG_HEX = 16 };

static bool is_uuid(const char *s, size_t len)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (len != strlen(form))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (form[i] == '-' ? s[i] != '-' : !isxdigit((unsigned char)s[i]))
			return false;
	}
	return true;
}

static bool is_id(const char *s, size_t len)
{
	bool decimal = len > 0, hex = len >= LONG_HEX;

	for (size_t i = 0; i < len; i++) {
		decimal = decimal && isdigit((unsigned char)s[i]);
		hex = hex && isxdigit((unsigned char)s[i]);
	}
	return decimal || hex || is_uuid(s, len);
}

char *request_endpoint(char *to, size_t size, const char *path)
{
	size_t n = 0;

	for (const char *s = path; n + 1 < size;) {
		size_t len = strcspn(s, "/");
		const char *segment = is_id(s, len) ? "*" : s;
		size_t copied = segment == s ? len : 1;

		if (copied > size - 1 - n)
			copied = size - 1 - n;
		memcpy(to + n, segment, copied);
		n += copied;
		s += len;
		if (!*s || n + 1 >= size)
			break;
		to[n++] = *s++;
	}
	to[n] = 0;
	return to;
}
