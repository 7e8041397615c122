/* SPDX-License-Identifier: Apache-2.0 */
/* What a running agent, or the table ebpf_agent, says of what was seen, lost and delivered. */
#ifndef UNDERSPAN_DOCTOR_COUNTS_H
#define UNDERSPAN_DOCTOR_COUNTS_H

#include <stdbool.h>

#include "config.h"

extern const struct option_table doctor_counts_options;

/* True: asked to, by --agent, --clickhouse or --store. */
bool doctor_counts_wanted(void);

/* `say` prints one finding. False when something was lost, or nobody answers. */
bool doctor_counts_check(bool (*say)(bool ok, const char *what, const char *detail));

#endif
