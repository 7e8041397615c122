/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function per command. argv[0] is the command's name. Returns the process's exit code: 0 done,
 * 1 failed, 2 bad usage or configuration.
 */
#ifndef UNDERSPAN_COMMANDS_COMMANDS_H
#define UNDERSPAN_COMMANDS_COMMANDS_H

#include "base/config.h"
#include "base/util.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int command_run(int argc, char **argv);
int command_store(int argc, char **argv);
int command_sql(int argc, char **argv);
int command_schema(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_gil(int argc, char **argv);
int command_offcpu(int argc, char **argv);
int command_requests(int argc, char **argv);
int command_timeline(int argc, char **argv);
int command_top(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* Options of the commands, in addition to those of modules. */
extern const struct option_table run_options, store_options, sql_options, schema_options,
	gil_options, offcpu_options, requests_options, timeline_options, top_options,
	doctor_options;

/* The options of all commands and modules, ending with {0}. Static. */
const struct option_table *commands_all_options(void);

/* `underspan help TOPIC` for topics other than commands; false: unknown topic. */
bool help_topic(const char *name);
void help_list_topics(FILE *out);
/* Names of the topics by index; NULL: end. */
const char *help_topic_name(size_t index);

/* The exit code of a command that ended with `err`: 0, or -errno with the reason, which is logged.
 */
int command_end(int err, const struct why *why);

#endif
