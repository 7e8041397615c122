/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of events seen, lost and delivered, from a running agent or from ebpf_agent. */
#ifndef UNDERSPAN_COMMANDS_DOCTOR_COUNTS_H
#define UNDERSPAN_COMMANDS_DOCTOR_COUNTS_H

#include <stdbool.h>

#include "base/config.h"

extern const struct option_table doctor_counts_options;

/* True: requested by --agent, --clickhouse or --store. */
bool doctor_counts_wanted(void);

/* Adds a finding per tracker. Not ok: losses, or no answer. */
void doctor_counts_check(void);

#endif
