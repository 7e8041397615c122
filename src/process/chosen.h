/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes may be tracked: all, or the processes chosen by --pid with running descendants
 * and all later children (added by BPF). The agent is left out.
 */
#ifndef UNDERSPAN_PROCESS_CHOSEN_H
#define UNDERSPAN_PROCESS_CHOSEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

/* Puts the processes into the map. -ESRCH: a chosen process does not exist. */
int chosen_start(const struct pid_list *chosen, struct why *why);

/* Whether --pid was given. */
bool chosen_only(void);

bool chosen_includes(uint32_t host_pid);

#endif
