// SPDX-License-Identifier: Apache-2.0
/* JSON that controls no terminal. See json_output.h. */
#include "commands/json_output.h"

#include <errno.h>
#include <stdio.h>

/* The library escapes all controls but DEL, which occurs only in strings. */
static int put_bytes(const char *bytes, size_t n, void *context)
{
	(void)context;
	for (size_t i = 0; i < n; i++) {
		if ((bytes[i] == 0x7f ? fputs("\\u007f", stdout) : putchar(bytes[i])) == EOF)
			return -1;
	}
	return 0;
}

int json_output_write(const json_t *root)
{
	size_t flags = JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15);

	return root && !json_dump_callback(root, put_bytes, NULL, flags) && putchar('\n') != EOF
		       ? 0
		       : -EIO;
}
