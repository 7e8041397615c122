/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of `underspan explain`: a bar on the timeline, a label wrapped beside it; events of the
 * same kind in one line. All texts are made printable here.
 */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_TIMELINE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_TIMELINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In places, between the innermost function and the application's: sql/explain/place.inc. */
#define EXPLAIN_CALLED_FROM  ", called from "
#define EXPLAIN_UNKNOWN_CODE "code of unknown name"

enum { BAR_WIDTH = 20, LABEL_MAX = 512, LINES_MAX = 200, COLUMNS = 80 };

/* A column of a row: "" if missing or not text; 0 if missing, NULL or not a number. */
const char *explain_text(const json_t *row, const char *name);
int64_t explain_number(const json_t *row, const char *name);
double explain_ms(const json_t *row, const char *name);
bool explain_has(const json_t *row, const char *name); /* a number, not NULL */

/* Microseconds of a row within [from, to); <= 0: none. */
int64_t explain_overlap_us(const json_t *row, int64_t from_us, int64_t to_us);

/* The same between the read of the request and the answer: a pool's thread waits for its next work
 * before the event loop has written the answer. */
int64_t explain_handled_us(const json_t *request, const json_t *row);

/* Is the thread of a request of the ledger an event loop? */
bool explain_is_loop(const json_t *request);

enum { EXPLAIN_PEER_SIZE = 128 };

/* Is the peer of the longest waits for sockets known? A socket that is not connected (UDP) has
 * none. */
bool explain_has_peer(const json_t *request);

/* That peer: "10.0.0.5 port 5432", or the path of a unix socket. Returns `ret`. */
const char *explain_peer(const json_t *request, char ret[EXPLAIN_PEER_SIZE]);

/* Time range of the timeline. */
struct picture {
	int64_t begin_us, end_us;
	int columns; /* labels are wrapped at this column; 0: never (not a terminal) */
};

/* Prints a printable label, wrapped below its start in column `indent`. */
void print_wrapped(const struct picture *p, const char *label, int indent);
void print_line(const struct picture *p, int depth, const char *name, int64_t begin_us,
		int64_t end_us, int64_t sum_us);

struct line {
	char label[LABEL_MAX];
	int64_t begin_us, end_us, sum_us;
	unsigned int times;
};

/* Zero-initialized. */
struct lines {
	struct line items[LINES_MAX];
	size_t n, left_out;
};

/* Adds an event, or its time to the line of the same label. */
void lines_add(struct lines *lines, const char *label, int64_t begin_us, int64_t end_us);

/* The events "waits", "gc", "stalls" and "throttle" of a span or request. A quota stops all threads
 * of the process; further waits contain the time of the quota. */
void add_waits(struct lines *lines, const json_t *of);
void add_collections(struct lines *lines, const json_t *of);
void add_stalls(struct lines *lines, const json_t *of);
void add_quota(struct lines *lines, const json_t *of);
void print_lines(const struct picture *p, struct lines *lines, int depth);

/* A thread by name, otherwise by id. */
struct thread_label {
	char text[64];
};
struct thread_label thread_label(const json_t *row, const char *tid, const char *name);

#endif
