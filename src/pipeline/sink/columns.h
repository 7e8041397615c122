/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which columns of a batch exist in the database's table. Rows and token of a batch never change;
 * the column list of the INSERT does: missing columns are omitted, so that no row is lost with an
 * older or newer table. Sender thread only.
 */
#ifndef UNDERSPAN_PIPELINE_SINK_COLUMNS_H
#define UNDERSPAN_PIPELINE_SINK_COLUMNS_H

#include "clickhouse/client.h"
#include "base/util.h"

struct known_columns;

struct known_columns *known_columns_new(void); /* NULL: out of memory */
void known_columns_free(struct known_columns *known);

/*
 * The statement to send: *ret_insert NULL: `insert` unchanged; otherwise heap. From time to time
 * first asks `client` whether missing columns have been added. *ret_left_out: number of omitted
 * columns. -ENOMEM.
 */
int known_columns_statement(struct known_columns *known, struct clickhouse_client *client,
			    const char *insert, char **ret_insert, size_t *ret_left_out);

/*
 * Evaluates the answer to an INSERT. True: a missing or computed column was found, and another
 * statement may succeed.
 */
bool known_columns_learn(struct known_columns *known, struct clickhouse_client *client,
			 const char *insert, const struct clickhouse_reply *reply);

/*
 * An INSERT succeeded: its columns exist. Logs when no column is omitted any more.
 */
void known_columns_taken(struct known_columns *known, const char *insert);

#endif
