// SPDX-License-Identifier: Apache-2.0
/* Random names. See random.h. */
#include "base/random.h"

#include <string.h>
#include <sys/random.h>

void random_hex(char *buf, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char bytes[32];

	if (getrandom(bytes, sizeof(bytes), 0) < 0)
		memset(bytes, 0, sizeof(bytes));
	for (size_t i = 0; i < n; i++)
		buf[i] = hex[bytes[i % sizeof(bytes)] & 15];
	buf[n] = '\0';
}
