/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of `underspan explain`: files of sql/explain/, and views inlined into such a file. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_ASK_H
#define UNDERSPAN_COMMANDS_EXPLAIN_ASK_H

#include <jansson.h>

#include "clickhouse/client.h"

enum { US_PER_SEC = 1000000 };

/* Error of a question that needs a missing table or view. */
enum { NO_SUCH_TABLE = -ENODATA };

/*
 * A trace is what has its id within 6 hours of a moment, as an id may be used again for days. Moves
 * the ends of the trace's time into these hours. The log says what is left out of a trace: "spans",
 * "requests"; an empty trace_id: nothing is logged.
 */
void explain_keep_hours(const char *trace_id, const char *what, int64_t around_us,
			int64_t *first_us, int64_t *last_us);

/* Text of a file below sql/. */
const char *explain_sql_file(const char *path);

/* The query of a view: text after the CREATE line, without the closing semicolon; returns its
 * length. */
int explain_view_question(const char *path, const char **ret_text);

/* Enables the conditions that the views contain as comments. */
void explain_enable_conditions(char *sql);

/*
 * Numbers of a column as a ClickHouse array, 0 first: of the rows of a kind, or of all (NULL).
 * Heap; NULL: out of memory.
 */
char *explain_numbers(const json_t *rows, const char *column, const char *kind);

/* Rows of a question: an array of objects, freed by the caller. */
int explain_ask_text(struct clickhouse_client *client, const char *sql,
		     const struct clickhouse_param *params, json_t **ret_rows, struct why *why);
int explain_ask(struct clickhouse_client *client, const char *path,
		const struct clickhouse_param *params, json_t **ret_rows, struct why *why);

/* The answer's text in a format of ClickHouse, freed by the caller. */
int explain_ask_raw(struct clickhouse_client *client, const char *sql, const char *format,
		    const struct clickhouse_param *params, char **ret_text, size_t *ret_len,
		    struct why *why);

/*
 * Attaches the rows of a question about a process or thread (`of`: a row with pid, tid, host,
 * container_id, host_pid for refused.sql, and ports and netns for connections.sql and dropped.sql)
 * and a time range to `into` as `key`. A missing table: nothing is attached.
 */
int explain_attach(struct clickhouse_client *client, json_t *into, const json_t *of,
		   const char *key, const char *question, int64_t from_us, int64_t to_us,
		   struct why *why);

#endif
