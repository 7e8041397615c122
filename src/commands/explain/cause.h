/* SPDX-License-Identifier: Apache-2.0 */
/* A cause while causes.c, causes_before.c, causes_lock.c and causes_loop.c build the sentences. */
#ifndef UNDERSPAN_COMMANDS_EXPLAIN_CAUSE_H
#define UNDERSPAN_COMMANDS_EXPLAIN_CAUSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { SAID_MAX = 768 };

struct cause {
	const char *name; /* as in the JSON */
	double ms;
	char said[SAID_MAX], fix[SAID_MAX];
};

#define SAY(c, ...) snprintf((c)->said, sizeof((c)->said), __VA_ARGS__)
#define FIX(c, ...) snprintf((c)->fix, sizeof((c)->fix), __VA_ARGS__)

#define CAUSE_FIX_GIL                                                                              \
	"move that work to another process, or serve with more processes of fewer threads"

#define CAUSE_FIX_STOPPED                                                                          \
	"find what stops the process: SIGSTOP, gdb, strace, a profiler that pauses it"

#define CAUSE_FIX_FROZEN                                                                           \
	"find what froze it: docker pause, a snapshot of the container (CRIU), systemctl freeze"

#define CAUSE_FIX_DNS                                                                              \
	"a DNS server answered late or never: check the servers and the time-out in "              \
	"/etc/resolv.conf, or cache names"

#define CAUSE_FIX_GC                                                                               \
	"gc.freeze() when the application is loaded, before workers fork, so that collections "    \
	"skip these objects; higher thresholds (gc.set_threshold); or collections between "        \
	"requests"

/*
 * The remedy, with the code that blocked the loop longest between two columns' times, if known:
 * true. `part`: only code that spent most of its stall in this part; NULL: any.
 */
bool cause_fix_blocked_loop(const json_t *r, struct cause *c, const char *from, const char *to,
			    const char *part);

/* Is code known that blocked the loop between two columns' times, mostly for that part? */
bool cause_has_stall(const json_t *r, const char *from, const char *to, const char *part);

/* Time before the handler, by column of the request's row. */
void cause_accept_queue(const json_t *r, struct cause *c);
void cause_client_wait(const json_t *r, struct cause *c);
void cause_pool_wait(const json_t *r, struct cause *c);
void cause_queue(const json_t *r, struct cause *c);

/* Adds the longest of some collections, a row of explain/gc.sql, to what is said. */
void cause_add_collection(struct cause *c, const json_t *gc);

/* Waits for locks and for other threads. */
void cause_lock(const json_t *r, struct cause *c);

/* Time of an event loop, by column. */
void cause_await(const json_t *r, struct cause *c);
void cause_loop_busy(const json_t *r, struct cause *c);

#endif
