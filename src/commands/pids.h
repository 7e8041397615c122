/* SPDX-License-Identifier: Apache-2.0 */
/* Processes given as words of a command line: pids, names, units, cgroups. */
#ifndef UNDERSPAN_COMMANDS_PIDS_H
#define UNDERSPAN_COMMANDS_PIDS_H

#include "base/config.h"

/*
 * config_parse() for a command with processes as words, in addition to its option with target
 * `pids`: "12", "12,34", the name of a program ("gunicorn"), a systemd unit ("shop.service"), a
 * cgroup and all below ("/kubepods.slice"). -EINVAL with why: no process of this host.
 */
int pids_parse(const struct option_table *tables, int argc, char **argv, struct pid_list *pids,
	       struct why *why);

#endif
