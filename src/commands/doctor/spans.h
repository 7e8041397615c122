/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `doctor --spans`: how many server spans of otel_traces join with rows, and reasons for the rest.
 */
#ifndef UNDERSPAN_COMMANDS_DOCTOR_SPANS_H
#define UNDERSPAN_COMMANDS_DOCTOR_SPANS_H

#include <stdbool.h>

#include "base/config.h"

extern const struct option_table doctor_spans_options;

bool doctor_spans_wanted(void);

/* -EINVAL: an option of --spans without it. */
int doctor_spans_check_options(struct why *why);

/* Adds findings per service. Not ok: spans that do not join, or none at all. */
void doctor_spans_check(void);

#endif
