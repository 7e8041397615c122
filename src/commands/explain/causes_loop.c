// SPDX-License-Identifier: Apache-2.0
/* Causes of an event loop's time: blocked, or waiting for others, its pool of threads among them.
 * See cause.h. */
#include "commands/explain/cause.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands/explain/connections.h"
#include "commands/explain/ledger.h"
#include "commands/explain/timeline.h"

/* A pool was busy whose threads had known waits for so much of the time: computing and short waits
 * have no rows. */
enum { POOL_BUSY_PERCENT = 50 };

/* By the loop's kind: gevent's code has no await, trio's does not have asyncio's functions. */
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
	return "use await instead of blocking calls (asyncio.sleep, an asynchronous client, "
	       "asyncio.to_thread for computations and for clients without an asynchronous form); "
	       "more workers help further requests";
}

/* Is the stall's code that of the part `part`? A thread without a CPU or the GIL was computing. */
static bool is_stall_of(const json_t *stall, const char *part)
{
	const char *cause = explain_text(stall, "cause");

	if (!part)
		return true;
	if (!strcmp(cause, "runq") || !strcmp(cause, "gil"))
		cause = "cpu";
	if (!strcmp(part, "pipe") || !strcmp(part, "child"))
		part = "other";
	return !strcmp(cause, part);
}

bool cause_fix_blocked_loop(const json_t *r, struct cause *c, const char *from, const char *to,
			    const char *part)
{
	int64_t from_us = explain_number(r, from), to_us = explain_number(r, to), longest = 0;
	const json_t *stall, *worst = NULL;
	const char *instead = instead_of_blocking(
		explain_text(json_array_get(json_object_get(r, "stalls"), 0), "loop"));
	size_t i;

	json_array_foreach (json_object_get(r, "stalls"), i, stall) {
		int64_t us = explain_overlap_us(stall, from_us, to_us);

		if (us <= longest || !*explain_text(stall, "place") || !is_stall_of(stall, part))
			continue;
		longest = us;
		worst = stall;
	}
	if (!worst) {
		FIX(c, "%s", instead);
		return false;
	}
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
	if (percent < POOL_BUSY_PERCENT || open <= threads ||
	    c->ms < 2 * explain_ms(most, "longest_ms"))
		return;
	c->name = "pool_missing";
	FIX(c, "%s, or less time in %.150s",
	    threads == 1
		    ? "more workers, or more threads: one does all of this work (as for "
		      "synchronous views of Django in an ASGI process)"
		    : "a larger pool (anyio's limit of 40 threads, max_workers of an executor)",
	    *place ? place : "its work");
}

void cause_await(const json_t *r, struct cause *c)
{
	bool elsewhere = ledger_lacks(r, "work_elsewhere");

	c->name = "await";
	if (elsewhere && json_array_size(json_object_get(r, "pool"))) {
		await_pool(r, c);
		return;
	}
	SAY(c,
	    "the coroutine awaited a service, a timer, another coroutine (a lock, a connection of a "
	    "pool), a thread or the rest of the request, and the event loop was idle%s",
	    elsewhere ? "; other threads worked for it, or it waited until one "
			"of their pool was free (how long each was not measured)"
		      : "");
	if (!elsewhere)
		connections_add_awaited(r, c);
}
