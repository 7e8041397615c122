/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deduplication token of a batch, by which ClickHouse recognizes a repeated INSERT:
 * ORIGIN-TABLE-ORDER[.PART]-CHECKSUM. Equal tokens mean equal bytes.
 */
#ifndef UNDERSPAN_PIPELINE_DEDUP_TOKEN_H
#define UNDERSPAN_PIPELINE_DEDUP_TOKEN_H

#include <stdint.h>

#include "base/buffer.h"

enum { DEDUP_TOKEN_MAX = 512 }; /* with its NUL */

/* `origin`: a run of an agent. `part`: which half of which half; empty: a whole batch. */
void dedup_token_print(const char *origin, const char *table, uint64_t order, const char *part,
		       const struct buffer *bytes, char ret[DEDUP_TOKEN_MAX]);

/* The origin in the token of a whole batch: halves keep the origin. */
void dedup_token_origin(const char *token, const char *table, uint64_t order,
			char ret[DEDUP_TOKEN_MAX]);

#endif
