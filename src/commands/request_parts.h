/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a request, in the order of the columns of ebpf_request. */
#ifndef UNDERSPAN_COMMANDS_REQUEST_PARTS_H
#define UNDERSPAN_COMMANDS_REQUEST_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

struct ledger_part {
	const char *name;   /* "gil": the column is gil_ns */
	const char *words;  /* what the time was, for people */
	const char *brief;  /* the same in two words */
	bool hidden;	    /* counted in hidden_ms */
	bool may_be_null;   /* not measured everywhere */
	const char *reason; /* in not_measured, of a part that is NULL; NULL: none */
};

enum { REQUEST_PARTS = 21 };
extern const struct ledger_part request_parts[REQUEST_PARTS];

/* Index of a part; -EINVAL with a sentence that names the closest part. */
int request_part_find(const char *name, struct why *why);

/* NULL: not known to this version. */
const struct ledger_part *request_part_named(const char *name);

/* For HTML pages: {"parts": [{name, words, hidden}], "reasons": {reason: words}}. NULL: out of
 * memory. */
json_t *request_parts_json(void);

/* What a reason of not_measured means, in words; NULL: not known to this version. */
const char *request_reason_words(const char *reason);

#endif
