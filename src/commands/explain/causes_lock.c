// SPDX-License-Identifier: Apache-2.0
/* The cause of waits for locks, and for messages of other threads, which have a lock as their
 * means. See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/locks.h"
#include "commands/explain/message.h"
#include "commands/explain/place.h"
#include "commands/explain/timeline.h"

/* So many threads at one lock are a convoy, as in `underspan offcpu`. */
enum { CONVOY_THREADS = 10 };

/* "; lock convoy: 50 threads waited for it at once" */
static void add_queue(const json_t *r, struct cause *c)
{
	const json_t *queue = json_object_get(r, "lock_queue");
	int64_t threads = explain_number(queue, "at_once");
	size_t n = strlen(c->said);

	if (threads > 1)
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; %s%lld threads waited for it at once (lock %.20s)",
			 threads >= CONVOY_THREADS ? "lock convoy: " : "", (long long)threads,
			 explain_text(queue, "lock"));
}

/* Where the GIL has no probe. */
static const char *gil_included(const json_t *r)
{
	return explain_has(r, "gil_ms") ? ""
					: " (waits for the GIL are not measured separately "
					  "here and may be included)";
}

/* "; thread X ended the wait", or, among several, "the longest of these waits (100.2 ms)" */
static void add_waker(const json_t *r, struct cause *c, const json_t *wait)
{
	double ms = (double)explain_handled_us(r, wait) / 1000;
	bool all = ms * 100 >= c->ms * PLACE_SHARE_PERCENT;
	size_t n = strlen(c->said);
	char which[64] = "the wait";

	if (!all)
		snprintf(which, sizeof(which), "the longest of these waits (%.1f ms)", ms);
	if (explain_number(wait, "by_tid"))
		snprintf(c->said + n, sizeof(c->said) - n, "; thread %.60s ended %s",
			 thread_label(wait, "by_tid", "by_name").text, which);
	else
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; no thread is known to have ended %s: a time-out ends such a wait, too",
			 all ? "it" : which);
}

/*
 * Is the wait perhaps one in SimpleQueue.get(), which is in C, as a lock's acquire() is, and has no
 * frame? Whoever released a SimpleQueue's lock had not waited for it; nor had the only holder of a
 * lock, mostly. Library functions that take a lock are known.
 */
static bool may_be_simple_queue(const json_t *r, const json_t *wait)
{
	const char *place = wait ? explain_text(wait, "place") : "";

	return *place && !strcmp(explain_text(wait, "syscall"), "futex") &&
	       !*explain_text(wait, "library") && !strstr(place, EXPLAIN_CALLED_FROM) &&
	       !strstr(place, "/threading.py:") &&
	       json_array_size(json_object_get(r, "lock_holders")) <= 1;
}

/* "; 5 threads had it in turn, longest X (120.7 ms, 120.1 of it sleep, in PLACE)"; without a known
 * holder: who ended the wait */
static void add_lock_holder(const json_t *r, struct cause *c, const json_t *wait)
{
	const json_t *holders = json_object_get(r, "lock_holders");
	const json_t *holder = json_array_get(holders, 0);
	const char *did = explain_text(holder, "did"), *place = explain_text(holder, "place");
	size_t n = strlen(c->said), all = json_array_size(holders);
	char who[160], meanwhile[320] = "";

	if (!holder) {
		if (wait)
			add_waker(r, c, wait);
		return;
	}
	if (all > 1)
		snprintf(who, sizeof(who), "%zu threads had it in turn, longest %.60s", all,
			 thread_label(holder, "tid", "thread_name").text);
	else
		snprintf(who, sizeof(who), "thread %.60s had it%s",
			 thread_label(holder, "tid", "thread_name").text,
			 may_be_simple_queue(r, wait) ? " or put the item" : "");
	if (*did)
		snprintf(meanwhile, sizeof(meanwhile), ", %.1f of it %.20s%s%.200s",
			 explain_ms(holder, "did_ms"), did, *place ? ", in " : "", place);
	snprintf(c->said + n, sizeof(c->said) - n, "; %s (%.1f ms%s)", who,
		 explain_ms(holder, "held_ms"), meanwhile);
}

const char *cause_library_fix(const json_t *wait)
{
	static const struct {
		const char *library, *fix;
	} fixes[] = {
		{ "import", CAUSE_FIX_IMPORT ": "
					     "one thread imports it, and others wait" },
		{ "log", "a handler that does not write in the request (logging.handlers."
			 "QueueHandler with a QueueListener), or fewer log lines" },
		{ "pool", "a larger pool (of connections: SQLAlchemy's pool_size and max_overflow, "
			  "max_size, max_connections), or a connection is given back sooner" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fixes); i++) {
		if (!strcmp(explain_text(wait, "library"), fixes[i].library))
			return fixes[i].fix;
	}
	return NULL;
}

/* A wait for a message; ended by a thread, or by nobody: its time was up. */
static void lock_message(const json_t *r, struct cause *c, const json_t *wait)
{
	const struct message *message = message_of(explain_text(wait, "library"));
	const char *fix = cause_library_fix(wait);
	bool ended = explain_number(wait, "by_tid") != 0, measured = explain_has(r, "gil_ms");

	SAY(c, "the thread waited for %s%s%s",
	    message ? message->words
		    : "another thread (a condition, an event, a queue or a future)",
	    place_of_wait(r, c, wait).text, gil_included(r));
	add_waker(r, c, wait);
	if (fix)
		FIX(c, "%s", fix);
	else if (message && measured && (ended || message->fix_if_gave_up))
		FIX(c, "%s", message->fix);
	else if (!message && measured && ended)
		FIX(c,
		    "if it waited for a pool's connection or thread, a larger pool; otherwise less "
		    "work in what it waited for");
}

/* Is the wait for a lock of a file, by its system call? The kernel ends it, and no address tells
 * which file. */
static bool is_file_lock(const json_t *wait)
{
	const char *syscall = wait ? explain_text(wait, "syscall") : "";

	return !strcmp(syscall, "flock") || !strcmp(syscall, "fcntl");
}

/* A semaphore that any process can raise: who ended the wait need not have had it. */
static bool is_sysv_semaphore(const json_t *wait)
{
	const char *syscall = wait ? explain_text(wait, "syscall") : "";

	return !strcmp(syscall, "semop") || !strcmp(syscall, "semtimedop");
}

/* The object of a wait for a lock; NULL: without a row. */
static const char *said_of(const json_t *r, const json_t *wait)
{
	if (!wait)
		return "a lock or for another thread";
	if (is_file_lock(wait))
		return "a lock of a file";
	if (is_sysv_semaphore(wait))
		return "a semaphore of System V";
	return may_be_simple_queue(r, wait) ? "a lock or an item of a SimpleQueue" : "a lock";
}

static const char *fix_of(const json_t *r, const json_t *wait)
{
	const char *fix = cause_library_fix(wait);

	if (fix)
		return fix;
	if (is_file_lock(wait))
		return "less work while that lock is held, or a lock file for each thing that it "
		       "guards; `lslocks` lists the processes that have it";
	if (is_sysv_semaphore(wait))
		return "less time until another thread or process raises the semaphore; `ipcs -s` "
		       "lists all";
	if (may_be_simple_queue(r, wait))
		return "if that line takes a lock, do less while holding it, or provide more of "
		       "the guarded resource (a larger pool of connections); if it waits in "
		       "SimpleQueue.get(), less time until another thread puts the item";
	return "do less while holding that lock, or provide more of the guarded resource (a larger "
	       "pool of connections)";
}

void cause_lock(const json_t *r, struct cause *c)
{
	const json_t *wait = lock_longest_wait(r);
	bool message = wait && lock_is_message(wait);

	c->name = explain_is_loop(r) ? "loop_blocked" : "lock";
	if (message) {
		lock_message(r, c, wait);
	} else {
		SAY(c, "the thread waited for %s%s%s", said_of(r, wait),
		    place_of_wait(r, c, wait).text, gil_included(r));
		if (is_sysv_semaphore(wait))
			add_waker(r, c, wait);
		else
			add_lock_holder(r, c, wait);
		add_queue(r, c);
	}
	if (explain_is_loop(r))
		cause_fix_blocked_loop(r, c, "handled_us", "to_us", "lock");
	else if (explain_has(r, "gil_ms") && wait && !message)
		FIX(c, "%s", fix_of(r, wait));
}
