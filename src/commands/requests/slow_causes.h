/* SPDX-License-Identifier: Apache-2.0 */
/* Cause and fix of the slowest requests, as `underspan explain` states them. */
#ifndef UNDERSPAN_COMMANDS_REQUESTS_SLOW_CAUSES_H
#define UNDERSPAN_COMMANDS_REQUESTS_SLOW_CAUSES_H

#include <jansson.h>

#include "clickhouse/client.h"

/*
 * Sets "causes", see causes.h, of the slowest request of each of the three slowest endpoints in
 * report's "slowest". Without the right to read the tables: a note.
 */
void slow_causes_add(struct clickhouse_client *client, json_t *report);

#endif
