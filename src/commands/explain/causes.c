// SPDX-License-Identifier: Apache-2.0
/*
 * Causes in words. See causes.h. One rule per part of the ledger: a large part names the event, and
 * rows of the same time may name the reason. A rule without evidence for a remedy gives none.
 */
#include "commands/explain/causes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/explain/cause.h"
#include "commands/explain/connections.h"
#include "commands/explain/ledger.h"
#include "commands/explain/place.h"
#include "commands/explain/timeline.h"
#include "base/text.h"
#include "base/util.h"

/* Minimum share of the request, and minimum duration, of a reported part. */
enum { SHARE_PERCENT = 10, LEAST_MS = 2, CAUSES_MAX = 4 };

/* ---- the interpreter ---- */

static const json_t *longest_collection(const json_t *r, bool own)
{
	const json_t *row, *longest = NULL;
	int64_t most = -1;
	size_t i;

	json_array_foreach (json_object_get(r, "gc"), i, row) {
		int64_t us = explain_number(row, "end_us") - explain_number(row, "begin_us");

		if ((explain_number(row, "tid") == explain_number(r, "tid")) != own)
			continue;
		if (us > most)
			longest = row;
		most = us > most ? us : most;
	}
	return longest;
}

void cause_add_collection(struct cause *c, const json_t *gc)
{
	const char *place = explain_text(gc, "place");
	char walked[32] = "";
	size_t n = strlen(c->said);

	if (explain_has(gc, "long_lived"))
		snprintf(walked, sizeof(walked), " over %lld objects",
			 (long long)(explain_number(gc, "long_lived") +
				     explain_number(gc, "collected")));
	snprintf(c->said + n, sizeof(c->said) - n,
		 "; the longest: generation %lld%s, thread %.60s%s%.200s",
		 (long long)explain_number(gc, "generation"), walked,
		 thread_label(gc, "tid", "thread_name").text, *place ? ", triggered by " : "",
		 place);
}

static void put_collection(const json_t *r, struct cause *c, bool own, const char *whose)
{
	const json_t *gc = longest_collection(r, own);

	SAY(c, "%s stopped the request", whose);
	if (gc)
		cause_add_collection(c, gc);
	FIX(c, "%s", CAUSE_FIX_GC);
}

static void gc_sibling(const json_t *r, struct cause *c)
{
	c->name = "gc_sibling";
	put_collection(r, c, false, "garbage collections of other threads");
}

static void gc_own(const json_t *r, struct cause *c)
{
	c->name = "gc_own";
	put_collection(r, c, true, "garbage collections triggered by its own thread");
}

static void gil(const json_t *r, struct cause *c)
{
	const json_t *holder = json_array_get(json_object_get(r, "holders"), 0);
	const char *place = explain_text(holder, "place");
	struct quota quota = cause_quota_in_waits(r, "gil");

	c->name = "gil";
	if (!holder || !explain_number(holder, "tid")) {
		SAY(c, "other threads held the GIL; the holders are not known");
		return;
	}
	SAY(c, "other threads held the GIL, thread %.60s longest (%.1f ms)%s%.300s",
	    thread_label(holder, "tid", "thread_name").text, explain_ms(holder, "held_ms"),
	    *place ? ", in " : "", place);
	FIX(c, "%s", CAUSE_FIX_GIL);
	if (!cause_is_quota(&quota, c->ms))
		return;
	cause_add_quota(c, "; ", &quota);
	FIX(c, "%s", CAUSE_FIX_QUOTA);
}

/* ---- the machine ---- */

static void throttled(const json_t *r, struct cause *c)
{
	const json_t *window = json_array_get(json_object_get(r, "throttle"), 0);
	long long quota = explain_number(window, "quota_us"),
		  period = explain_number(window, "period_us");

	c->name = "cpu_limit";
	if (quota > 0 && period > 0)
		SAY(c, "the CPU quota of %.60s was used up (%.2f CPUs)",
		    explain_text(window, "cgroup"), (double)quota / (double)period);
	else
		SAY(c, "a CPU quota was used up");
	FIX(c, "%s", CAUSE_FIX_QUOTA);
}

/* ---- parts of the handler ---- */

/* A blocking call in an event loop stops all requests of the loop, independent of the cause. */
static bool blocks_loop(const json_t *r, struct cause *c, const char *what, const char *cause)
{
	if (!explain_is_loop(r))
		return false;
	c->name = "loop_blocked";
	SAY(c, "a call in a coroutine blocked the event loop's thread (%s)%s", what,
	    place_of(r, c, cause).text);
	cause_fix_blocked_loop(r, c, "handled_us", "to_us", cause);
	return true;
}

static void net(const json_t *r, struct cause *c)
{
	if (blocks_loop(r, c, "a socket", "net"))
		connections_add_blocked(r, c);
	else
		cause_net(r, c);
}

/* The remedy for a part that was spent while a module was imported, by the longest place of `rows`
 * with that cause (NULL: any), or none. */
static void fix_import(const json_t *rows, struct cause *c, const char *cause)
{
	const json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) { /* longest first */
		if (cause && strcmp(explain_text(row, "cause"), cause) != 0)
			continue;
		if (place_imports(explain_text(row, "place")))
			FIX(c, "%s", CAUSE_FIX_IMPORT);
		return;
	}
}

/* Without a remedy; `what` names the object of the wait. */
static void waited_for(const json_t *r, struct cause *c, const char *what, const char *cause)
{
	if (blocks_loop(r, c, what, cause))
		return;
	c->name = cause;
	SAY(c, "the thread waited for %s%s", what, place_of(r, c, cause).text);
}

static void disk(const json_t *r, struct cause *c)
{
	waited_for(r, c, "a disk", "disk");
	if (!*c->fix)
		fix_import(json_object_get(r, "places"), c, "disk");
	if (!*c->fix)
		FIX(c, "fewer waits for that volume (fsync() after each write, files that do not "
		       "fit into memory), or a faster one");
}

static void fault(const json_t *r, struct cause *c)
{
	c->name = "fault";
	SAY(c, "the thread waited for missing pages of memory%s",
	    place_of(r, c, "page_fault").text);
	FIX(c, "more memory, if the host swaps or drops its page cache");
}

static void sleeping(const json_t *r, struct cause *c)
{
	enum { AGAIN = 3 };
	size_t sleeps = place_waits(r, "sleep");
	char again[160] = "";

	if (blocks_loop(r, c, "a sleep", "sleep"))
		return;
	c->name = "sleep";
	if (sleeps >= AGAIN)
		snprintf(again, sizeof(again),
			 ", %zu times: a loop that polls, or a library that tries again, as SQLite "
			 "does while its database is locked",
			 sleeps);
	SAY(c, "the code slept%s%s", place_of(r, c, "sleep").text, again);
	fix_import(json_object_get(r, "places"), c, "sleep");
}

/* For a thread's request; a loop's remedy is that of its kind. */
static void fix_child(const json_t *r, struct cause *c)
{
	if (!*c->fix && !explain_is_loop(r))
		FIX(c, "a library instead of that child process, or the work outside of requests "
		       "(a task queue); subprocess's timeout= limits the wait");
}

static void pipe_wait(const json_t *r, struct cause *c)
{
	const json_t *wait;
	size_t i, children = 0, pipes = 0;

	/* module subprocess waits for a child by the child's output */
	json_array_foreach (json_object_get(r, "waits"), i, wait) {
		if (strcmp(explain_text(wait, "cause"), "pipe") != 0)
			continue;
		pipes++;
		children += !strcmp(explain_text(wait, "library"), "child");
	}
	waited_for(r, c,
		   pipes && children == pipes ? "a pipe from or to a child process" : "a pipe",
		   "pipe");
	if (pipes && children == pipes)
		fix_child(r, c);
}

static void child(const json_t *r, struct cause *c)
{
	waited_for(r, c, "a child process", "child");
	fix_child(r, c);
}

/* "; longest wait of thread X: child, 310.7 ms, in PLACE": what its rows show of time that is in no
 * part. */
static void add_longest_wait(const json_t *r, struct cause *c)
{
	const json_t *row, *longest = NULL;
	int64_t most_us = 0;
	size_t i, n = strlen(c->said);

	json_array_foreach (json_object_get(r, "waits"), i, row) {
		int64_t us = explain_handled_us(r, row);

		if (us <= most_us || !*explain_text(row, "place"))
			continue;
		most_us = us;
		longest = row;
	}
	if (longest)
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; longest wait of thread %.60s: %.20s, %.1f ms, in %.250s",
			 thread_label(r, "tid", "thread_name").text, explain_text(longest, "cause"),
			 (double)most_us / 1000, explain_text(longest, "place"));
}

/* Of the time of no other part, the process was held: `how`, a cause of off_cpu_cause.inc. */
static bool held(const json_t *r, struct cause *c, const char *how, const char *by, const char *fix)
{
	const json_t *row;
	int64_t us = 0;
	size_t i;

	json_array_foreach (json_object_get(r, "places"), i, row) {
		if (!strcmp(explain_text(row, "cause"), how))
			us += explain_number(row, "us");
	}
	if ((double)us / 1000 < c->ms / 2)
		return false;
	c->name = how;
	SAY(c, "the thread was %s by %s%s", how, by, place_of(r, c, how).text);
	FIX(c, "%s", fix);
	return true;
}

/* Of the time of no other part, did the handler wait so? An event loop's rows are of the loop's own
 * polls, too: there its stalls tell. */
static bool waited_so(const json_t *r, const struct cause *c, const char *how)
{
	int64_t us = 0, from_us = explain_number(r, "handled_us"),
		to_us = explain_number(r, "to_us");
	bool loop = explain_is_loop(r);
	const json_t *row;
	size_t i;

	json_array_foreach (json_object_get(r, loop ? "stalls" : "places"), i, row) {
		int64_t of_row = loop ? explain_overlap_us(row, from_us, to_us)
				      : explain_number(row, "us");

		if (!strcmp(explain_text(row, "cause"), how) && of_row > 0)
			us += of_row;
	}
	return (double)us / 1000 >= c->ms / 2;
}

/* In select(), poll() or epoll_wait(). The code of a loop's stalls is in the remedy. */
static bool selected(const json_t *r, struct cause *c)
{
	if (!waited_so(r, c, "poll"))
		return false;
	if (explain_is_loop(r)) {
		c->name = "loop_blocked";
		SAY(c, "a call in a coroutine blocked the event loop's thread (select() or poll() "
		       "of descriptors that are not the loop's)");
		cause_fix_blocked_loop(r, c, "handled_us", "to_us", "poll");
		return true;
	}
	SAY(c,
	    "the thread waited for one of several descriptors (select(), poll(), "
	    "epoll_wait())%s",
	    place_of(r, c, "poll").text);
	/* psycopg 3 waits so for the socket of its connection, and for nothing else */
	if (strstr(place_of(r, c, "poll").text, " (psycopg/waiting.py:"))
		FIX(c, "psycopg waits there for its database: find why that answered late (locks, "
		       "slow queries), or ask it less often");
	return true;
}

static void other(const json_t *r, struct cause *c)
{
	c->name = "other";
	if (held(r, c, "stopped", "a signal or a debugger", CAUSE_FIX_STOPPED) ||
	    held(r, c, "frozen", "the freezer of its cgroup", CAUSE_FIX_FROZEN))
		return;
	/* where a coroutine may have used other threads, too, a stall is the loop's own wait */
	if (!ledger_lacks(r, "work_elsewhere") ||
	    (explain_is_loop(r) && (waited_so(r, c, "poll") || waited_so(r, c, "other")))) {
		if (selected(r, c))
			return;
		waited_for(r, c, "something else", "other");
		return;
	}
	SAY(c, "other threads worked for it, or it was not seen which thread: what they waited for "
	       "is not known");
	if (!explain_is_loop(r))
		add_longest_wait(r, c);
}

static void cpu(const json_t *r, struct cause *c)
{
	/* a loop's samples may be of other requests that were open */
	bool alone = !explain_is_loop(r) || !explain_ms(r, "loop_busy_ms");

	c->name = explain_is_loop(r) ? "loop_blocked" : "cpu";
	SAY(c, "the thread computed%s%s", alone ? place_of_computation(r).text : "",
	    explain_has(r, "gc_own_ms")
		    ? ""
		    : " (its own collections are not measured separately here)");
	if (explain_is_loop(r))
		cause_fix_blocked_loop(r, c, "handled_us", "to_us", "cpu");
	else
		fix_import(json_object_get(r, "computed"), c, NULL);
}

static const struct {
	const char *column;
	void (*tell)(const json_t *r, struct cause *c);
} rules[] = {
	{ "accept_queue_ms", cause_accept_queue },
	{ "client_wait_ms", cause_client_wait },
	{ "queue_ms", cause_queue },
	{ "pool_wait_ms", cause_pool_wait },
	{ "cpu_ms", cpu },
	{ "runq_ms", cause_runq },
	{ "throttled_ms", throttled },
	{ "gil_ms", gil },
	{ "gc_own_ms", gc_own },
	{ "gc_sibling_ms", gc_sibling },
	{ "lock_ms", cause_lock },
	{ "net_ms", net },
	{ "disk_ms", disk },
	{ "fault_ms", fault },
	{ "sleep_ms", sleeping },
	{ "pipe_ms", pipe_wait },
	{ "child_ms", child },
	{ "other_ms", other },
	{ "await_ms", cause_await },
	{ "loop_busy_ms", cause_loop_busy },
	{ "client_slow_ms", cause_client_slow },
};

static int by_ms(const void *a, const void *b)
{
	const struct cause *x = a, *y = b;

	return x->ms < y->ms ? 1 : x->ms > y->ms ? -1 : 0;
}

json_t *causes_of(const json_t *request)
{
	struct cause *found = calloc(ARRAY_SIZE(rules), sizeof(*found));
	double whole = explain_ms(request, "duration_ms");
	json_t *causes = found ? json_array() : NULL;
	size_t n = 0;

	for (size_t i = 0; found && i < ARRAY_SIZE(rules); i++) {
		double ms = explain_ms(request, rules[i].column);

		if (ms < LEAST_MS || ms * 100 < whole * SHARE_PERCENT)
			continue;
		found[n].ms = ms;
		rules[i].tell(request, &found[n++]);
	}
	if (n)
		qsort(found, n, sizeof(*found), by_ms);
	for (size_t i = 0; causes && i < n && i < CAUSES_MAX; i++) {
		/* a name may be cut within a character */
		char said[SAID_MAX], fix[SAID_MAX];

		text_printable(said, sizeof(said), found[i].said);
		text_printable(fix, sizeof(fix), found[i].fix);
		json_array_append_new(causes,
				      json_pack("{s:s, s:f, s:s, s:s}", "cause", found[i].name,
						"ms", found[i].ms, "said", said, "fix", fix));
	}
	free(found);
	return causes;
}
