/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window of a database: options of time, host and service, and the queries of sql/window/ and of
 * commands about rows that ended in the window.
 */
#ifndef UNDERSPAN_COMMANDS_WINDOW_H
#define UNDERSPAN_COMMANDS_WINDOW_H

#include <jansson.h>

#include "clickhouse/client.h"
#include "commands/database.h"

/* The choice of rows, filled by window_options. */
struct window_choice {
	uint64_t since_ns, until_ns; /* ago; 0: not given */
	char *host, *service;	     /* NULL: all */
	char *namespace, *pod, *container;
};
extern struct window_choice window_choice;
extern const struct option_table window_options;

/* --against-since, --against-until: a second window for comparison. */
extern struct window_choice window_against;
extern const struct option_table window_against_options;

/* A connection and the parameters of all queries. */
struct window {
	struct clickhouse_target target;
	struct clickhouse_client *client;
	const char *host, *service; /* NULL: all */
	const char *namespace, *pod, *container;
	const char *table; /* named if the database lacks the table */
	int64_t now_us;	   /* of the database's clock */
	int64_t from_us, to_us;
	char from[32], to[32];
	char *pids;    /* heap */
	bool no_spans; /* the database has no view otel_span */
};

/* Whether an option chooses rows of a database. */
bool window_is_chosen(void);

/* Whether a database is given, other than by the host's configuration. */
bool window_has_database(void);

/*
 * For a command that measures or asks: whether the database answers (a window is chosen, or a
 * database is given without -d), and -EINVAL if -d is given as well.
 */
bool window_answers(void);
int window_check_not_timed(struct why *why);

/* Sets defaults of --since and the second window; -EINVAL: an end before its begin. */
int window_complete(struct why *why);

/* Connects; the window is that of `window_choice`. To be closed also after an error. */
int window_open(struct window *w, const char *table, const struct pid_list *pids, struct why *why);

/* The begin of a report: from_us, to_us, what was chosen, no notes. Released by the caller. */
json_t *window_report(const struct window *w, const struct pid_list *pids);

/*
 * Reads the window of --against-since, if given, then the window of --since. `read` adds rows and
 * the coverage of its window to `times`: `report` itself, or report["against"].
 */
typedef int window_read(void *context, json_t *report, json_t *times, struct why *why);
int window_read_both(struct window *w, json_t *report, window_read *read, void *context,
		     struct why *why);

/* A note if sums of two windows are compared of which one was measured longer: measured_s of both.
 */
void window_note_lengths(json_t *report);

/*
 * Rows of a file of sql/: an array, released by the caller. Parameters of all files: from, to,
 * host, service, pids, namespace, pod, container; `more`: others, ends with {0}. Lines behind
 * "--service: ", "--place: " and "--spans: " apply where a service is asked for, a namespace, pod
 * or container, and where the database has spans as well.
 */
int window_ask(struct window *w, const char *path, const struct clickhouse_param *more,
	       json_t **ret_rows, struct why *why);

/*
 * For how long a tracker was measured, the sum over hosts; adds notes about losses (`events`: what
 * the tracker counts), sampling and refused processes to report["notes"]. *ret_coverage: rows of
 * sql/window/coverage.sql, released by the caller.
 */
int window_coverage(struct window *w, const char *tracker, const char *events, json_t *report,
		    json_t **ret_coverage, double *ret_measured_s, struct why *why);

/*
 * -ENODATA: no agent ran the tracker ("": any) in that time, with the first note; with the hosts of
 * that time, if a host was asked for that none of them is.
 */
int window_not_measured(struct window *w, const json_t *report, const char *tracker,
			struct why *why);

/*
 * For a window without rows: -ENODATA if pids are given and none was measured by the tracker ("":
 * any).
 */
int window_check_known(struct window *w, const char *tracker, struct why *why);

/* For a window without rows: notes with the services that have some, if one was asked for, and that
 * a pid has no children there. */
int window_note_empty(struct window *w, json_t *report, struct why *why);

void window_close(struct window *w);

#endif
