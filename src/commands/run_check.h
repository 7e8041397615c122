/* SPDX-License-Identifier: Apache-2.0 */
/* `underspan run --check`: validates the configuration and prints the effect. */
#ifndef UNDERSPAN_COMMANDS_RUN_CHECK_H
#define UNDERSPAN_COMMANDS_RUN_CHECK_H

#include "agent/agent.h"
#include "base/config.h"

/*
 * After all checks of single options. Prints the trackers and sink that would run; creates, opens
 * and connects nothing. All errors are errors of the configuration.
 */
int run_check(const struct option_table *tables, const struct agent_options *agent, bool to_stdout,
	      struct why *why);

#endif
