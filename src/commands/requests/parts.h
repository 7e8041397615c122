/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a request, in the order of the columns of ebpf_request. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_PARTS_H
#define UNDERSPAN_COMMANDS_REQUESTS_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

struct ledger_part {
	const char *name;   /* "gil": the column is gil_ns */
	bool hidden;	    /* counted in hidden_ms */
	bool may_be_null;   /* not measured everywhere */
	const char *reason; /* in not_measured, of a part that is NULL; NULL: none */
};

enum { REQUEST_PARTS = 21 };
extern const struct ledger_part request_parts[REQUEST_PARTS];

/* Index of a part; -EINVAL with a sentence that names the closest part. */
int request_part_find(const char *name, struct why *why);

/* What a reason of not_measured means, in words; NULL: not known to this version. */
const char *request_reason_words(const char *reason);

#endif
