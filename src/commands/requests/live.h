/* SPDX-License-Identifier: Apache-2.0 */
/* `underspan requests -p PID`: runs the agent in this process, with rows in memory. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_LIVE_H
#define UNDERSPAN_COMMANDS_REQUESTS_LIVE_H

#include "commands/report.h"

/* *ret_report: released by the caller. As measure_run(); -ENOTSUP: nothing could be measured. */
int live_report(const struct request_question *question, json_t **ret_report, struct why *why);

#endif
