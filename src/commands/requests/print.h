/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of `underspan requests`. All texts are made printable; lines fit the terminal. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_PRINT_H
#define UNDERSPAN_COMMANDS_REQUESTS_PRINT_H

#include "commands/report.h"

void requests_print(const json_t *report, const struct request_question *question);

#endif
