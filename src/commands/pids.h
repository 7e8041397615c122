/* SPDX-License-Identifier: Apache-2.0 */
/* Pids given as words of a command line. */
#ifndef UNDERSPAN_COMMANDS_PIDS_H
#define UNDERSPAN_COMMANDS_PIDS_H

#include "base/config.h"

/*
 * config_parse() for a command with pids as words, "12" or "12,34", in addition to its option with
 * target `pids`. -EINVAL with why: not a pid.
 */
int pids_parse(const struct option_table *tables, int argc, char **argv, struct pid_list *pids,
	       struct why *why);

#endif
