/* SPDX-License-Identifier: Apache-2.0 */
/* A cause while causes.c and causes_*.c build the sentences. */
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

#define CAUSE_FIX_QUOTA                                                                            \
	"a higher CPU limit (resources.limits.cpu, CPUQuota=), or fewer threads that "             \
	"compute at once"

#define CAUSE_FIX_STOPPED                                                                          \
	"find what stops the process: SIGSTOP, gdb, strace, a profiler that pauses it"

#define CAUSE_FIX_FROZEN                                                                           \
	"find what froze it: docker pause, a snapshot of the container (CRIU), systemctl freeze"

#define CAUSE_FIX_DNS                                                                              \
	"a DNS server answered late or never: check the servers and the time-out in "              \
	"/etc/resolv.conf, or cache names"

#define CAUSE_FIX_IMPORT "import that module when the application is loaded, not in a request"

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

/*
 * How long a CPU quota stopped the process, in [from, to) or in its thread's waits of a cause. An
 * estimate: a window has up to ten periods and their sum. `window`: the one with most; NULL: none.
 */
struct quota {
	const json_t *window;
	double ms;
};
struct quota cause_quota_in(const json_t *r, int64_t from_us, int64_t to_us);
struct quota cause_quota_in_waits(const json_t *r, const char *cause);

/* Is it half of a wait of `ms` or more? */
bool cause_is_quota(const struct quota *quota, double ms);

/* Adds `before`, and "the CPU quota of X (0.20 CPUs) stopped the process about 80 ms of that". */
void cause_add_quota(struct cause *c, const char *before, const struct quota *quota);

/* A wait for a CPU. */
void cause_runq(const json_t *r, struct cause *c);

/* The remedy for the library function that waited for a lock, a column of
 * sql/explain/library.inc; NULL: none. */
const char *cause_library_fix(const json_t *wait);

/* Waits for locks and for other threads. */
void cause_lock(const json_t *r, struct cause *c);

/* The remedy for a client that sent the request late, and who it is. */
void cause_fix_late_client(const json_t *r, struct cause *c);

/* Time of an event loop, by column. */
void cause_await(const json_t *r, struct cause *c);
void cause_loop_busy(const json_t *r, struct cause *c);

#endif
