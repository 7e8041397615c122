/* SPDX-License-Identifier: Apache-2.0 */
/* `underspan run --check`: whether the configuration is right, and what would run. */
#ifndef UNDERSPAN_COMMANDS_RUN_CHECK_H
#define UNDERSPAN_COMMANDS_RUN_CHECK_H

#include "agent/agent.h"
#include "base/config.h"

/*
 * After all checks of single options. Prints what would run; creates, opens and connects nothing.
 * Any error is one of the configuration.
 */
int run_check(const struct option_table *tables, const struct agent_options *agent, bool to_stdout,
	      struct why *why);

#endif
