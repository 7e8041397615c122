/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of `underspan requests` as one JSON object: made from a database (requests/stored.c)
 * or from rows in memory (requests/live.c), printed as JSON (--json) or as tables
 * (requests/print.c). Members:
 *
 * - from_us, to_us, by: the window; the column of the order
 * - requests, rows: requests in the window, and rows standing for them
 * - slowest: rows of sql/requests/slowest.sql, with "causes" of requests/slow_causes.h
 * - endpoints: rows of sql/requests/endpoints.sql
 *   "before": the same endpoint in the window of --against-since
 * - against: times of that window
 * - endpoints_total: number of endpoints, including those not shown
 * - listeners: rows of sql/requests/listeners.sql with additions of report_add_listener()
 * - not_measured: [{reason, requests, words}]
 * - notes: sentences about losses and unwatched processes
 */
#ifndef UNDERSPAN_COMMANDS_REPORT_H
#define UNDERSPAN_COMMANDS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "rows/column.h"

/* The question. */
struct request_question {
	const char *path;     /* NULL: all */
	struct pid_list pids; /* none: all */
	uint64_t top;
	int part;	/* order of all lists; -1: total time, hidden time */
	bool endpoints; /* only endpoints */
	bool causes;	/* of the slowest requests; only from a database */
};

/* A column of a row: "" if missing or not text; 0 if missing, NULL or not a number. */
const char *report_text(const json_t *row, const char *name);
double report_number(const json_t *row, const char *name);
/* The first `max` texts of a list, kept in `items`. */
struct column_strings report_strings(const json_t *row, const char *name, const char **items,
				     size_t max);
bool report_has(const json_t *row, const char *name); /* a number, not NULL */

/* "gil_ns" -> the part's value; false: NULL. */
bool report_part(const json_t *row, int part, double *ret_ns);

/*
 * Adds to a listener's sums: service_ms, per_second and peak_per_second (arrivals), missing and
 * peak_missing (arrivals x service time - threads), or null with `why_not`. `seconds`: time
 * measured; 0: not known. Steals `listener`.
 */
void report_add_listener(json_t *report, json_t *listener, double seconds);

/* A reason of not_measured with the number of requests. */
void report_add_reason(json_t *report, const char *reason, double requests);

/* "7 waits off the CPU have no row for lack of space", of "waits off the CPU". Returns `buf`. */
const char *report_lost(char *buf, size_t size, double lost, const char *events);

void report_add_note(json_t *report, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
