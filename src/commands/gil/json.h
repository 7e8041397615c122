/* SPDX-License-Identifier: Apache-2.0 */
/* The result of `underspan gil` as JSON, for --json and --html. */
#ifndef UNDERSPAN_COMMANDS_GIL_JSON_H
#define UNDERSPAN_COMMANDS_GIL_JSON_H

#include <jansson.h>

#include "commands/gil/totals.h"
#include "commands/measure.h"

struct gil_result {
	struct gil_totals *totals; /* is sorted anew */
	const struct measured *measured;
	const json_t *stored; /* the report of gil_stored(); NULL: live */
	uint64_t wall_ns;
	const char *not_measured;
};

/* Released by the caller. Without sums if nothing was measured. */
json_t *gil_json(const struct gil_result *result);

#endif
