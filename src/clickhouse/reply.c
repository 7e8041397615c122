// SPDX-License-Identifier: Apache-2.0
/* Responses of ClickHouse. See reply.h. */
#include "clickhouse/reply.h"

#include <string.h>

int clickhouse_exception_code(const char *body, size_t len)
{
	static const char start[] = "Code: ";
	size_t i = sizeof(start) - 1;
	int code = 0;

	if (len <= i || memcmp(body, start, i) != 0)
		return 0;
	for (; i < len && body[i] >= '0' && body[i] <= '9' && code < 100000; i++)
		code = code * 10 + (body[i] - '0');
	return i < len && (body[i] == '.' || body[i] == ',') ? code : 0;
}
