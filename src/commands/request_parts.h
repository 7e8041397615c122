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
	const char *words;  /* description of the time */
	const char *brief;  /* the same in two words */
	bool hidden;	    /* counted in hidden_ms */
	bool may_be_null;   /* not measured everywhere */
	const char *reason; /* name in not_measured if the part is NULL; NULL: none */
};

enum { REQUEST_PARTS = 21 };
extern const struct ledger_part request_parts[REQUEST_PARTS];

/* Index of a part; -EINVAL with the closest name in the sentence. */
int request_part_find(const char *name, struct why *why);

/* NULL: not known to this version. */
const struct ledger_part *request_part_named(const char *name);

/* For HTML pages: {"parts": [{name, words, hidden}], "reasons": {reason: words}}. NULL: out of
 * memory. */
json_t *request_parts_json(void);

/* Description of a reason of not_measured; NULL: not known to this version. */
const char *request_reason_words(const char *reason);

/* Stem of the tracker whose probe was missing; NULL: the reason is not a missing probe. */
const char *request_reason_tracker(const char *reason);

#endif
