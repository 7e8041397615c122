// SPDX-License-Identifier: Apache-2.0
/* Causes of an event loop's time: blocked, or waiting for others, its pool of threads among them.
 * See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/connections.h"
#include "commands/explain/ledger.h"
#include "commands/explain/place.h"
#include "commands/explain/timeline.h"

/* A pool was busy whose threads had known waits for so much of the time: computing and short waits
 * have no rows. */
enum { POOL_BUSY_PERCENT = 50 };

static bool is_asyncio(const char *loop)
{
	return !strcmp(loop, "asyncio") || !strcmp(loop, "uvloop");
}

/*
 * Remedies by the loop's kind, which its stalls tell: gevent's code has no await, trio's does not
 * have asyncio's functions. Without a stall the loop may be any (eventlet's and twisted's have
 * none).
 */

/* A call of module subprocess cannot be awaited, and gevent's is another module's. */
static const char *instead_of_waiting_for_a_child(const char *loop)
{
	if (!strcmp(loop, "gevent"))
		return "use gevent.subprocess (monkey.patch_all() replaces subprocess by it) "
		       "instead of waiting for a child process, os.system() and os.waitpid() "
		       "among them; more workers help further requests";
	if (!strcmp(loop, "trio"))
		return "use await trio.run_process instead of waiting for a child process "
		       "(subprocess.run, os.system, os.waitpid); more workers help further "
		       "requests";
	if (is_asyncio(loop))
		return "use await asyncio.create_subprocess_exec, or asyncio.to_thread, instead of "
		       "waiting for a child process (subprocess.run, os.system, os.waitpid); more "
		       "workers help further requests";
	return "use the loop's way to run a child process (asyncio.create_subprocess_exec, "
	       "twisted's getProcessOutput, gevent.subprocess, eventlet.green.subprocess), or a "
	       "thread of its pool, instead of waiting for one (subprocess.run, os.system, "
	       "os.waitpid); more workers help further requests";
}

static const char *instead_of_blocking(const char *loop)
{
	if (!strcmp(loop, "gevent"))
		return "use calls that gevent makes cooperative (monkey.patch_all(), for "
		       "psycopg2 psycogreen) instead of blocking ones, "
		       "gevent.get_hub().threadpool for computations and for clients in C; more "
		       "workers help further requests";
	if (!strcmp(loop, "trio"))
		return "use await instead of blocking calls (trio.sleep, an asynchronous client, "
		       "trio.to_thread.run_sync for computations and for clients without an "
		       "asynchronous form); more workers help further requests";
	if (is_asyncio(loop))
		return "use await instead of blocking calls (asyncio.sleep, an asynchronous "
		       "client, asyncio.to_thread for computations and for clients without an "
		       "asynchronous form); more workers help further requests";
	return "use the loop's own calls instead of blocking ones, and its threads for "
	       "computations and for clients without an asynchronous form (asyncio: await, "
	       "asyncio.to_thread; gevent, eventlet: monkey patching, threadpool, tpool; twisted: "
	       "deferToThread); more workers help further requests";
}

/*
 * Is the stall's code that of the part `part`? A thread without a CPU or the GIL was computing. A
 * stall knows fewer parts than a request: "other", where sql/explain/stalls.sql found no rows; a
 * child's output is a pipe.
 */
static bool is_stall_of(const json_t *stall, const char *part)
{
	const char *cause = explain_text(stall, "cause");

	if (!part)
		return true;
	if (!strcmp(cause, "runq") || !strcmp(cause, "gil"))
		cause = "cpu";
	if (!strcmp(cause, "other"))
		return !strcmp(part, "pipe") || !strcmp(part, "child") || !strcmp(part, "other") ||
		       !strcmp(part, "poll");
	if (!strcmp(part, "pipe") && !strcmp(cause, "child"))
		return true;
	if (!strcmp(part, "other") &&
	    (!strcmp(cause, "poll") || !strcmp(cause, "stopped") || !strcmp(cause, "frozen")))
		return true;
	return !strcmp(cause, part);
}

/* The stall that took longest of that time, of those with known code, or of all; NULL: none. */
static const json_t *longest_stall(const json_t *r, const char *from, const char *to,
				   const char *part, bool with_code)
{
	int64_t from_us = explain_number(r, from), to_us = explain_number(r, to), longest = 0;
	const json_t *stall, *worst = NULL;
	size_t i;

	json_array_foreach (json_object_get(r, "stalls"), i, stall) {
		int64_t us = explain_overlap_us(stall, from_us, to_us);

		if (us <= longest || (with_code && !*explain_text(stall, "place")) ||
		    !is_stall_of(stall, part))
			continue;
		longest = us;
		worst = stall;
	}
	return worst;
}

static const json_t *worst_stall(const json_t *r, const char *from, const char *to,
				 const char *part)
{
	return longest_stall(r, from, to, part, true);
}

bool cause_has_stall(const json_t *r, const char *from, const char *to, const char *part)
{
	return worst_stall(r, from, to, part) != NULL;
}

/* A stall with the time of a quota in `runq`, within the request. */
static bool kept_by_quota(const json_t *r, const json_t *stall, struct cause *c)
{
	int64_t begin = explain_number(stall, "begin_us"), end = explain_number(stall, "end_us"),
		from = explain_number(r, "from_us"), to = explain_number(r, "to_us");
	struct quota quota;

	begin = begin > from ? begin : from;
	end = end < to ? end : to;
	quota = cause_quota_in(r, begin, end);
	if (!cause_is_quota(&quota, (double)(end - begin) / 1000))
		return false;
	snprintf(c->said + strlen(c->said), sizeof(c->said) - strlen(c->said),
		 "; of %.1f ms in which it did not poll, ", (double)(end - begin) / 1000);
	cause_add_quota(c, "", &quota);
	FIX(c, "%s", CAUSE_FIX_QUOTA);
	return true;
}

/*
 * A request that waited for the loop: what else than its code kept the loop's thread. Adds to what
 * is said, and gives the remedy.
 */
static bool kept_from_outside(const json_t *r, const json_t *stall, struct cause *c)
{
	static const struct {
		const char *cause, *said, *fix;
	} kept[] = {
		{ "stopped", "was stopped by a signal or a debugger", CAUSE_FIX_STOPPED },
		{ "frozen", "was stopped by the freezer of its cgroup", CAUSE_FIX_FROZEN },
		{ "gil", "waited for the GIL", CAUSE_FIX_GIL },
		{ "runq", "was ready to run, and no CPU was free",
		  "a larger instance, or less other work on this host" },
	};

	if (!strcmp(explain_text(stall, "cause"), "runq") && kept_by_quota(r, stall, c))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		size_t n = strlen(c->said);

		if (strcmp(explain_text(stall, "cause"), kept[i].cause) != 0)
			continue;
		snprintf(c->said + n, sizeof(c->said) - n,
			 "; of %.1f ms in which it did not poll, its thread %s most of the time",
			 (double)(explain_number(stall, "end_us") -
				  explain_number(stall, "begin_us")) /
				 1000,
			 kept[i].said);
		FIX(c, "%s", kept[i].fix);
		return true;
	}
	return false;
}

bool cause_fix_blocked_loop(const json_t *r, struct cause *c, const char *from, const char *to,
			    const char *part)
{
	const json_t *worst = worst_stall(r, from, to, part),
		     *any = part ? NULL : longest_stall(r, from, to, NULL, false);
	const char *loop = explain_text(json_array_get(json_object_get(r, "stalls"), 0), "loop");
	const char *instead = part && !strcmp(part, "child") ? instead_of_waiting_for_a_child(loop)
							     : instead_of_blocking(loop);

	if (any && kept_from_outside(r, any, c))
		return true;
	if (!worst) {
		FIX(c, "%s", instead);
		return false;
	}
	if (place_imports(explain_text(worst, "place")))
		instead = CAUSE_FIX_IMPORT;
	else if (!strcmp(explain_text(worst, "cause"), "child"))
		instead = instead_of_waiting_for_a_child(loop);
	FIX(c, "in %.200s, which kept the event loop for %.1f ms: %s", explain_text(worst, "place"),
	    (double)(explain_number(worst, "end_us") - explain_number(worst, "begin_us")) / 1000,
	    instead);
	return true;
}

void cause_loop_busy(const json_t *r, struct cause *c)
{
	c->name = "loop_blocked";
	SAY(c,
	    "the event loop ran or was blocked while %lld requests were open, this one among them: "
	    "the share of each is not known",
	    (long long)explain_number(r, "open_requests"));
	cause_fix_blocked_loop(r, c, "handled_us", "to_us", NULL);
}

/* Sockets that a pool's thread without Python waits for are those of getaddrinfo(). */
static void await_name(const json_t *most, struct cause *c)
{
	const char *place = explain_text(most, "place");

	if (!strcmp(explain_text(most, "cause"), "net") &&
	    (!*place || strstr(place, "getaddrinfo")) &&
	    explain_ms(most, "longest_ms") * 2 >= c->ms)
		FIX(c, "%s", CAUSE_FIX_DNS);
}

/* Threads of a pool that were ready and had no CPU: by a quota? */
static bool await_quota(const json_t *r, const json_t *most, struct cause *c)
{
	struct quota quota = cause_quota_in(r, explain_number(r, "handled_us"),
					    explain_number(r, "to_us"));

	if (strcmp(explain_text(most, "cause"), "preempt") != 0 || !cause_is_quota(&quota, c->ms))
		return false;
	cause_add_quota(c, "; ", &quota);
	FIX(c, "%s", CAUSE_FIX_QUOTA);
	return true;
}

/* The remedy for a library's lock, as of a pool of connections; NULL: the wait is another. */
static const char *fix_of_library(const json_t *wait)
{
	return !strcmp(explain_text(wait, "cause"), "lock") ? cause_library_fix(wait) : NULL;
}

/*
 * What the thread waited for that woke the loop for the answer, with the remedy, where the wait is
 * half of the time: true.
 */
static bool add_last_worker(const json_t *r, struct cause *c)
{
	const json_t *most = json_array_get(json_object_get(r, "last_worker"), 0);
	const char *place = explain_text(most, "place"), *fix = fix_of_library(most);
	size_t n = strlen(c->said);

	if (!most)
		return false;
	snprintf(c->said + n, sizeof(c->said) - n,
		 "; thread %.60s woke the loop before the answer, after it had waited longest for: "
		 "%.20s%s%.150s (%.1f ms)",
		 thread_label(most, "tid", "thread_name").text, explain_text(most, "cause"),
		 *place ? ", in " : "", place, explain_ms(most, "ms"));
	if (!fix || explain_ms(most, "ms") * 2 < c->ms)
		return false;
	FIX(c, "%s", fix);
	return true;
}

/*
 * Work that the loop gave to a pool, or a wait for it: what the pool's threads waited for
 * meanwhile. The remedy needs more requests than threads, threads that were busy, and a request
 * that took twice as long as any wait of theirs: its own work may be one.
 */
static void await_pool(const json_t *r, struct cause *c)
{
	const json_t *most = json_array_get(json_object_get(r, "pool"), 0);
	long long threads = explain_number(most, "pool_threads"),
		  waiting = explain_number(most, "threads"),
		  open = explain_number(r, "open_requests");
	int64_t us = explain_number(r, "to_us") - explain_number(r, "handled_us");
	double percent = us > 0 ? explain_ms(most, "pool_ms") * 1e5 / (double)(us * threads) : 0;
	const char *place = explain_text(most, "place");

	SAY(c,
	    "the coroutine awaited threads to which its event loop gives work, or a free one of "
	    "them (how long each was not measured); the %lld such thread%s waited %.0f %% of that "
	    "time, longest for: %.20s%s%.150s (%.1f ms in %lld thread%s); %lld request%s open",
	    threads, plural(threads), percent > 100 ? 100 : percent, explain_text(most, "cause"),
	    *place ? ", in " : "", place, explain_ms(most, "waited_ms"), waiting, plural(waiting),
	    open, counted(open, " was", "s were"));
	await_name(most, c);
	if (add_last_worker(r, c) || await_quota(r, most, c))
		return;
	if (percent < POOL_BUSY_PERCENT || open <= threads ||
	    c->ms < 2 * explain_ms(most, "longest_ms"))
		return;
	c->name = "pool_missing";
	if (fix_of_library(most)) {
		FIX(c, "%s: more threads would wait there, too", fix_of_library(most));
		return;
	}
	FIX(c, "%s, or less time in %.150s",
	    threads == 1
		    ? "more workers, or more threads: one does all of this work (as for "
		      "synchronous views of Django in an ASGI process)"
		    : "a larger pool (anyio's limit of 40 threads, max_workers of an executor)",
	    *place ? place : "its work");
}

/*
 * Was most of the part a poll of other descriptors than the loop's, as of a client with an epoll of
 * its own? The ledger does not tell the two apart; a stall is known by the loop's descriptor.
 */
static bool polled_elsewhere(const json_t *r, const struct cause *c)
{
	int64_t from_us = explain_number(r, "handled_us"), to_us = explain_number(r, "to_us");
	static const char *const told[] = { "other_ms", "child_ms", "pipe_ms", "fault_ms",
					    "loop_busy_ms" };
	const json_t *stall;
	double ms = 0;
	size_t i;

	/* such time is in a stall, and in no await */
	for (i = 0; i < ARRAY_SIZE(told); i++)
		ms -= explain_ms(r, told[i]);
	json_array_foreach (json_object_get(r, "stalls"), i, stall) {
		int64_t us = explain_overlap_us(stall, from_us, to_us);

		if (us > 0 && is_stall_of(stall, "poll"))
			ms += (double)us / 1000;
	}
	return ms * 2 >= c->ms;
}

/*
 * The client sent the body late, for half of the time or more. A coroutine that works before it has
 * read all of it waits for both: the client is named all the same, as its bytes were missing.
 */
static bool awaited_body(const json_t *r, struct cause *c)
{
	double ms = explain_ms(r, "body_wait_ms");

	if (ms * 2 < c->ms)
		return false;
	c->name = "client_late";
	SAY(c,
	    "the event loop was idle, and for %.1f ms of that the client had not sent the rest of "
	    "the request (%lld bytes in all)",
	    ms, (long long)explain_number(r, "bytes_in"));
	cause_fix_late_client(r, c);
	return true;
}

void cause_await(const json_t *r, struct cause *c)
{
	bool elsewhere = ledger_lacks(r, "work_elsewhere");

	c->name = "await";
	if (polled_elsewhere(r, c)) {
		c->name = "loop_blocked";
		SAY(c, "a call in a coroutine blocked the event loop's thread (select(), poll() or "
		       "epoll_wait() of descriptors that are not the loop's)");
		cause_fix_blocked_loop(r, c, "handled_us", "to_us", "poll");
		return;
	}
	if (awaited_body(r, c))
		return;
	if (elsewhere && json_array_size(json_object_get(r, "pool"))) {
		await_pool(r, c);
		return;
	}
	SAY(c,
	    "the coroutine awaited a service, a timer, another coroutine (a lock, a connection of a "
	    "pool), a thread or the rest of the request, and the event loop was idle%s",
	    elsewhere ? "; other threads may have worked for it, or it waited until one "
			"of their pool was free (how long each was not measured)"
		      : "");
	if (elsewhere)
		add_last_worker(r, c);
	else
		connections_add_awaited(r, c);
}
