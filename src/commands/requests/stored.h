/* SPDX-License-Identifier: Apache-2.0 */
/* `underspan requests` from a database: the queries are in sql/requests/. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_STORED_H
#define UNDERSPAN_COMMANDS_REQUESTS_STORED_H

#include "commands/report.h"

/* *ret_report: released by the caller. -ENODATA: nothing was measured; -errno with why. */
int stored_report(const struct request_question *question, json_t **ret_report, struct why *why);

#endif
