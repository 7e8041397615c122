/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cause and fix of a slow request in words, as far as a part of the ledger and rows of the same
 * time show them.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_CAUSES_H
#define UNDERSPAN_COMMANDS_EXPLAIN_CAUSES_H

#include <jansson.h>

/*
 * Of a request of ledger.h, largest part first: an array of {"cause": a word, "ms", "said",
 * "fix"}, "fix" is "" where nothing is known to help. Texts contain untrusted names. NULL: out of
 * memory.
 */
json_t *causes_of(const json_t *request);

/*
 * Time before a request's row, which no part has: handshakes dropped by its listener. {"drops",
 * "overflows", "said", "fix"}; NULL: none are known, or out of memory.
 */
json_t *cause_before_request(const json_t *request);

#endif
