/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of request_time_parts for `underspan explain`, asked step by step. The time of a question
 * for one trace is the time of its plan, which grows with the square of the question: the views'
 * SQL is the same, but the pieces marked in it are asked by themselves, and the next question has
 * their rows as literals. Half of the time of one question.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_STEPS_H
#define UNDERSPAN_COMMANDS_EXPLAIN_STEPS_H

#include <jansson.h>

#include "clickhouse/client.h"

/* `params`: of both views. Errors as explain_ask_text(). */
int explain_ask_parts(struct clickhouse_client *client, const struct clickhouse_param *params,
		      json_t **ret_rows, struct why *why);

#endif
