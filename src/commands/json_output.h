/* SPDX-License-Identifier: Apache-2.0 */
/* The option --json of commands that read a database. */
#ifndef UNDERSPAN_COMMANDS_JSON_OUTPUT_H
#define UNDERSPAN_COMMANDS_JSON_OUTPUT_H

#include <jansson.h>

/* Prints to stdout as printable ASCII, which parses to the same texts. 0 or -EIO. */
int json_output_write(const json_t *root);

#endif
