/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function a command, named after it. argv[0] is the command's name.
 * They return the process's exit code: 0 done, 1 failed, 2 bad usage or configuration.
 */
#ifndef UNDERSPAN_COMMANDS_H
#define UNDERSPAN_COMMANDS_H

#include "util.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int command_run(int argc, char **argv);
int command_store(int argc, char **argv);
int command_sql(int argc, char **argv);
int command_schema(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_gil(int argc, char **argv);
int command_offcpu(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* The exit code of a command that ended with `err`: 0, or -errno whose reason is logged. */
int command_end(int err, const struct why *why);

#endif
