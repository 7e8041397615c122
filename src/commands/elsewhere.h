/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words that somebody types who knows other programs: commands, topics and options that are not
 * here, with what to do instead.
 */
#ifndef UNDERSPAN_COMMANDS_ELSEWHERE_H
#define UNDERSPAN_COMMANDS_ELSEWHERE_H

#include <stdbool.h>

/* A word for what the service manager does. */
bool elsewhere_service(const char *word);

/* What to do instead of this command or topic; NULL: not known. */
const char *elsewhere_command(const char *word);

/*
 * What to do instead of this option ("--debug", "-q", "--user=me") of a command; NULL: not known,
 * or an option that a command of underspan has, unless it is told of this command.
 */
const char *elsewhere_option(const char *command, const char *arg);

#endif
