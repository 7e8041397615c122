// SPDX-License-Identifier: Apache-2.0
/* Deduplication tokens. See dedup_token.h. */
#include "pipeline/dedup_token.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/deflate.h"

void dedup_token_print(const char *origin, const char *table, uint64_t order, const char *part,
		       const struct buffer *bytes, char ret[DEDUP_TOKEN_MAX])
{
	snprintf(ret, DEDUP_TOKEN_MAX, "%s-%s-%llu%s%s-%08x", origin, table,
		 (unsigned long long)order, *part ? "." : "", part,
		 deflate_crc32(0, bytes->data, bytes->len));
}

void dedup_token_origin(const char *token, const char *table, uint64_t order,
			char ret[DEDUP_TOKEN_MAX])
{
	char behind[128]; /* a table's name, and a number */
	const char *end;

	snprintf(behind, sizeof(behind), "-%s-%llu", table, (unsigned long long)order);
	end = strstr(token, behind);
	snprintf(ret, DEDUP_TOKEN_MAX, "%.*s",
		 (int)(end ? (size_t)(end - token) : DEDUP_TOKEN_MAX / 2), token);
}
